"use strict";
/*
 * chart.js -- line charts in SVG; no library, no network.
 *
 *	zchart(parent, {title: "loss", series: [{name: "run", x: [1, 2], y: [3.5, "NaN"]}]})
 *
 * A value that is no finite number ("NaN", "Infinity", null) breaks the line and has a red mark.
 * Options: unit "bytes", "s" or "" (plain); log: begin with a log scale; smooth: a button
 * draws means over 1/50 of the points; zero: the axis begins at 0; step: a value holds until the next; wide: a whole row; note: a line below the title; xlabel.
 * series[i].color (0 to 9) and .dash; both follow from i where they are missing.  With step,
 * series[i].until is the x where its last value ends (the end of the chart).
 * Keys, with the focus on a chart: arrows move the cursor (with Shift by 10), Home, End, + and -
 * zoom, 0 shows all, l toggles the log scale, Escape hides the cursor.
 */
var zchart = (function () {
	const NS = "http://www.w3.org/2000/svg", COLORS = 10, HEIGHT = 250, MARKS = 100;
	const MOST = 5000;	/* points of a line, before columns of pixels are summed up */
	const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

	function node(tag, parent, attrs, text) {
		const svg = /^(svg|g|path|line|text|circle|rect)$/.test(tag);
		const e = svg ? document.createElementNS(NS, tag) : document.createElement(tag);
		for (const k in attrs || {})
			e.setAttribute(k, attrs[k]);
		if (text !== undefined)
			e.textContent = text;
		if (parent)
			parent.appendChild(e);
		return e;
	}

	/* ---- numbers as text ---- */

	function plain(v) {
		const a = Math.abs(v);
		if (!isFinite(v))
			return isNaN(v) ? "NaN" : v < 0 ? "-inf" : "inf";
		if (a && (a < 1e-3 || a >= 1e9))
			return v.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
		if (a >= 1e4)
			return Math.round(v).toLocaleString("en-US");
		return String(+v.toPrecision(5));
	}
	function bytes(v) {
		const units = ["B", "KiB", "MiB", "GiB", "TiB"];
		let u = 0;
		while (Math.abs(v) >= 1024 && u < 4) {
			v /= 1024;
			u++;
		}
		return +v.toPrecision(4) + " " + units[u];
	}
	function format(v, unit) {
		if (!isFinite(v) || !unit)
			return plain(v);
		return unit === "bytes" ? bytes(v) : plain(v) + " " + unit;
	}
	function short(v, unit) {
		const a = Math.abs(v);
		if (unit === "bytes")
			return bytes(v);
		if (a >= 1e4 && a < 1e15) {
			const u = Math.min(4, Math.floor(Math.log10(a) / 3 + 1e-9));
			return +(v / Math.pow(1000, u)).toPrecision(4) + ["", "k", "M", "G", "T"][u];
		}
		return plain(v);
	}

	/* ---- scales ---- */

	/* Round values of [lo, hi], about n of them. */
	function ticks(lo, hi, n, base) {
		const raw = (hi - lo) / n, out = [];
		let step = Math.pow(base, Math.floor(Math.log(raw) / Math.log(base) + 1e-9));
		for (const m of base === 2 ? [1, 2] : [1, 2, 5, 10])
			if (step * m >= raw * 0.999) {
				step *= m;
				break;
			}
		for (let v = Math.ceil(lo / step - 1e-9); v * step <= hi + step * 1e-9; v++)
			out.push(v * step);
		return out;
	}
	function log_ticks(lo, hi) {
		const a = Math.floor(Math.log10(lo)), b = Math.ceil(Math.log10(hi)), out = [];
		const every = Math.max(1, Math.ceil((b - a) / 7));
		const within = b - a <= 1 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : b - a <= 3 ? [1, 2, 5] : [1];
		for (let e = a; e <= b; e += every)
			for (const m of within)
				if (m * Math.pow(10, e) >= lo * 0.999 && m * Math.pow(10, e) <= hi * 1.001)
					out.push(m * Math.pow(10, e));
		return out.length > 1 || lo === hi ? out : ticks(lo, hi, 4, 10);
	}

	/* First index whose x is not below v. */
	function lower(xs, v) {
		let a = 0, b = xs.length;
		while (a < b) {
			const m = (a + b) >> 1;
			if (xs[m] < v)
				a = m + 1;
			else
				b = m;
		}
		return a;
	}

	/*
	 * Indices of [from, to) that are drawn: of each column of pixels the first, least, largest
	 * and last, and what is no number. So no peak is lost.
	 */
	function thin(s, from, to, columns, column_of) {
		const out = [];
		if (to - from <= Math.min(MOST, 4 * columns)) {
			for (let i = from; i < to; i++)
				out.push(i);
			return out;
		}
		for (let i = from; i < to;) {
			const c = column_of(s.x[i]), keep = new Set([i]);
			let least = -1, most = -1;
			for (; i < to && column_of(s.x[i]) === c; i++) {
				if (!isFinite(s.y[i])) {
					if (keep.size < 8)
						keep.add(i);
					continue;
				}
				if (least < 0 || s.y[i] < s.y[least])
					least = i;
				if (most < 0 || s.y[i] > s.y[most])
					most = i;
			}
			keep.add(i - 1);
			if (least >= 0)
				keep.add(least).add(most);
			out.push(...Array.from(keep).sort((p, q) => p - q));
		}
		return out;
	}

	/* ---- a chart ---- */

	return function (parent, opts) {
		const unit = opts.unit || "";
		const series = opts.series.map(function (s, i) {
			const color = s.color === undefined ? i % COLORS : s.color;
			const dash = s.dash === undefined ? Math.floor(i / COLORS) : s.dash;
			return {name: s.name, x: s.x, y: s.y.map(v => v === null ? NaN : Number(v)), on: true,
				cls: "s" + color, dash: DASHES[dash % DASHES.length],
				until: s.until, key: "key s" + color + (dash ? " dashed" : "")};
		});
		const figure = node("figure", parent, {"class": "chart" + (opts.wide ? " wide" : "")});
		const head = node("div", figure, {"class": "head"});
		const ends = span(series);
		let smooth = false, log = !!opts.log, view = null, at = null, drag = null, width = 0, plot = null;

		node("h3", head, {}, opts.title);
		const all = node("button", head, {type: "button", "class": "tool", hidden: ""}, "show all");
		const toggle = node("button", head, {type: "button", "class": "tool"}, "log scale");
		const soft = opts.smooth ? node("button", head, {type: "button", "class": "tool",
			"aria-pressed": "false"}, "smooth") : null;
		if (opts.note)
			node("p", figure, {"class": "note"}, opts.note);
		const svg = node("svg", figure, {role: "img", tabindex: "0", height: HEIGHT});
		const readout = node("div", figure, {"class": "readout", "aria-live": "polite"});
		const legend = node("div", figure, {"class": "legend"});
		legend.hidden = series.length === 1 && series[0].name === opts.title;
		svg.setAttribute("aria-label", opts.title + ": line chart, " + series.length +
			(series.length === 1 ? " series" : " series") +
			"; arrow keys read values, + and - zoom");

		function span(list) {
			let a = Infinity, b = -Infinity;
			for (const s of list)
				if (s.x.length) {
					a = Math.min(a, s.x[0]);
					b = Math.max(b, s.x[s.x.length - 1], opts.step && s.until || 0);
				}
			return a > b ? [0, 1] : a === b ? [a - 0.5, b + 0.5] : [a, b];
		}
		function shown() {
			return series.filter(s => s.on);
		}
		function range(x0, x1) {
			let a = Infinity, b = -Infinity;
			for (const s of shown())
				for (let i = Math.max(0, lower(s.x, x0) - (opts.step ? 1 : 0));
				     i < s.x.length && s.x[i] <= x1; i++)
					if (isFinite(s.y[i]) && (!log || s.y[i] > 0)) {
						a = Math.min(a, s.y[i]);
						b = Math.max(b, s.y[i]);
					}
			if (a > b)
				return null;
			if (log)
				return a === b ? [a / 2, b * 2] : [a / 1.05, b * 1.05];
			if (opts.zero && a >= 0)
				a = 0;
			if (a === b)
				return [a - (Math.abs(a) * 0.1 || 1), b + (Math.abs(b) * 0.1 || 1)];
			return [opts.zero && a === 0 ? 0 : a - (b - a) * 0.04, b + (b - a) * 0.04];
		}

		function axes(p) {
			const y = p.yr ? log ? log_ticks(p.yr[0], p.yr[1]) :
				ticks(p.yr[0], p.yr[1], 5, unit === "bytes" ? 2 : 10) : [];
			const apart = p.w / Math.max(2, Math.floor(p.w / 80));
			for (const v of y) {
				node("line", svg, {"class": "grid", x1: p.l, x2: p.l + p.w, y1: p.Y(v), y2: p.Y(v)});
				node("text", svg, {x: p.l - 6, y: p.Y(v) + 4, "text-anchor": "end"}, short(v, unit));
			}
			node("line", svg, {"class": "axis", x1: p.l, x2: p.l + p.w, y1: p.t + p.h, y2: p.t + p.h});
			for (const v of ticks(p.xr[0], p.xr[1], Math.max(2, Math.floor(p.w / apart)), 10))
				if (Number.isInteger(v) || p.xr[1] - p.xr[0] < 1)
					node("text", svg, {x: p.X(v), y: p.t + p.h + 16, "text-anchor": "middle"},
						short(v, ""));
			node("text", svg, {x: p.l + p.w, y: p.t + p.h + 30, "text-anchor": "end"},
				opts.xlabel || "step");
		}
		/* Exponential means of the finite values; the others stay. */
		function softened(s) {
			const keep = 1 - 1 / Math.max(2, Math.min(s.y.length / 50, 500));
			let sum = 0, weight = 0;
			return s.y.map(function (v) {
				if (!isFinite(v))
					return v;
				sum = keep * sum + v;
				weight = keep * weight + 1;
				return sum / weight;
			});
		}
		function lines(p, root) {
			for (const s of shown()) {
				line(p, s, root, smooth ? " faint" : "");
				if (smooth)
					line(p, Object.assign({}, s, {y: softened(s)}), root, "");
			}
		}
		function line(p, s, root, more) {
			const from = Math.max(0, lower(s.x, p.xr[0]) - 1);
			const to = Math.min(s.x.length, lower(s.x, p.xr[1]) + 2);
			const fine = 2;	/* columns of a pixel */
			const idx = thin(s, from, to, p.w * fine, x => Math.floor(p.X(x) * fine));
			let d = "", pen = false, lone = null, last = 0, marks = 0;
			const dot = function () {
				if (lone !== null)
					node("circle", root, {"class": "dot " + s.cls, r: 3, cx: p.X(s.x[lone]),
						cy: p.Y(s.y[lone])});
				lone = null;
			};
			for (const i of idx) {
				const X = p.X(s.x[i]).toFixed(1);
				if (!isFinite(s.y[i]) || (log && s.y[i] <= 0)) {
					dot();
					pen = false;
					if (!isFinite(s.y[i]) && marks++ < MARKS) {
						const m = node("path", root, {"class": "lost", d: "M" + (X - 4) + "," +
							(p.t + p.h - 10) + "l8,8m-8,0l8,-8"});
						node("title", m, {}, s.name + ": " + plain(s.y[i]) + " at " + s.x[i]);
					}
					continue;
				}
				const Y = p.Y(s.y[i]).toFixed(1);
				if (pen && opts.step)
					d += "V" + last;
				d += pen ? opts.step ? "H" + X + "V" + Y : "L" + X + "," + Y : "M" + X + "," + Y;
				lone = pen ? null : i;
				pen = true;
				last = Y;
			}
			dot();
			if (opts.step && pen)	/* to the end, or to a point that is out of view */
				d += "H" + Math.min(p.l + p.w, s.until === undefined ? Infinity : p.X(s.until)).toFixed(1);
			if (d)
				node("path", root, {"class": "line " + s.cls + more, d: d, "stroke-dasharray": s.dash});
		}
		function draw() {
			const p = {l: 64, t: 10, xr: view || ends}, f = log ? Math.log10 : v => v;
			width = figure.clientWidth - 24;
			if (width < 120)
				width = 600;
			p.w = width - p.l - 14;
			p.h = HEIGHT - p.t - 36;
			p.yr = range(p.xr[0], p.xr[1]);
			p.X = v => p.l + (v - p.xr[0]) / (p.xr[1] - p.xr[0]) * p.w;
			p.Y = v => p.yr ? p.t + p.h - (f(v) - f(p.yr[0])) / (f(p.yr[1]) - f(p.yr[0])) * p.h : p.t;
			plot = p;
			svg.replaceChildren();
			svg.setAttribute("viewBox", "0 0 " + width + " " + HEIGHT);
			axes(p);
			const clip = node("svg", svg, {x: p.l - 5, y: 0, width: p.w + 10, height: p.t + p.h + 4,
				viewBox: (p.l - 5) + " 0 " + (p.w + 10) + " " + (p.t + p.h + 4)});
			lines(p, clip);
			if (!p.yr)
				node("text", svg, {x: p.l + p.w / 2, y: p.t + p.h / 2, "text-anchor": "middle"},
					!series.length ? "no data" : !shown().length ? "no series is switched on" :
					log ? "no value above 0" : "no finite value");
			toggle.setAttribute("aria-pressed", String(log));
			all.hidden = !view;
			cursor();
		}

		/* ---- what the cursor reads ---- */

		function nearest(x) {
			let best = null;
			for (const s of shown()) {
				const i = lower(s.x, x);
				for (const k of [i - 1, i])
					if (k >= 0 && k < s.x.length && s.x[k] >= plot.xr[0] && s.x[k] <= plot.xr[1] &&
					    (best === null || Math.abs(s.x[k] - x) < Math.abs(best - x)))
						best = s.x[k];
			}
			return best;
		}
		function beside(x, way) {
			let best = null;
			for (const s of shown()) {
				let i = lower(s.x, x);
				i = way < 0 ? i - 1 : s.x[i] === x ? i + 1 : i;
				if (i >= 0 && i < s.x.length && s.x[i] >= plot.xr[0] && s.x[i] <= plot.xr[1] &&
				    (best === null || Math.abs(s.x[i] - x) < Math.abs(best - x)))
					best = s.x[i];
			}
			return best === null ? x : best;
		}
		function cursor() {
			svg.querySelectorAll(".cursor, .read").forEach(e => e.remove());
			readout.replaceChildren();
			if (at === null || !plot || at < plot.xr[0] || at > plot.xr[1])
				return;
			node("line", svg, {"class": "cursor", x1: plot.X(at), x2: plot.X(at), y1: plot.t,
				y2: plot.t + plot.h});
			node("b", readout, {}, (opts.xlabel || "step") + " " + plain(at));
			let n = 0;
			for (const s of shown()) {
				let i = lower(s.x, at);
				if (s.x[i] !== at && opts.step)
					i--;
				else if (s.x[i] !== at)
					continue;
				if (i < 0 || at > s.until)
					continue;
				if (++n > 12) {
					readout.append(" \u2026");
					break;
				}
				readout.append("  ");
				node("span", readout, {"class": s.key});
				readout.append(s.name + " ");
				node("b", readout, {}, format(s.y[i], unit));
				if (plot.yr && isFinite(s.y[i]) && (!log || s.y[i] > 0))
					node("circle", svg, {"class": "dot read " + s.cls, r: 4, cx: plot.X(at),
						cy: plot.Y(s.y[i])});
			}
		}
		function data_x(ev) {
			const box = svg.getBoundingClientRect();
			const x = (ev.clientX - box.left) * width / box.width;
			return plot.xr[0] + (x - plot.l) / plot.w * (plot.xr[1] - plot.xr[0]);
		}
		function zoom(a, b) {
			a = Math.max(a, ends[0]);
			b = Math.min(b, ends[1]);
			view = a <= ends[0] && b >= ends[1] ? null : b - a < 1 ? view : [a, b];
			draw();
		}

		svg.addEventListener("pointermove", function (ev) {
			if (!plot)
				return;
			at = nearest(data_x(ev));
			cursor();
			if (drag !== null) {
				const a = plot.X(Math.min(drag, data_x(ev))), b = plot.X(Math.max(drag, data_x(ev)));
				svg.querySelectorAll(".zoom").forEach(e => e.remove());
				node("rect", svg, {"class": "zoom", x: a, width: b - a, y: plot.t, height: plot.h});
			}
		});
		svg.addEventListener("pointerleave", function () {
			if (drag === null && document.activeElement !== svg) {
				at = null;
				cursor();
			}
		});
		svg.addEventListener("pointerdown", function (ev) {
			if (ev.button === 0 && ev.pointerType === "mouse") {
				drag = data_x(ev);
				svg.setPointerCapture(ev.pointerId);
			}
		});
		svg.addEventListener("pointerup", function (ev) {
			const from = drag;
			drag = null;
			svg.querySelectorAll(".zoom").forEach(e => e.remove());
			if (from !== null && Math.abs(plot.X(data_x(ev)) - plot.X(from)) > 8)
				zoom(Math.min(from, data_x(ev)), Math.max(from, data_x(ev)));
		});
		svg.addEventListener("dblclick", () => zoom(-Infinity, Infinity));
		all.addEventListener("click", () => zoom(-Infinity, Infinity));
		toggle.addEventListener("click", function () {
			log = !log;
			draw();
		});
		if (soft)
			soft.addEventListener("click", function () {
				smooth = !smooth;
				soft.setAttribute("aria-pressed", String(smooth));
				draw();
			});
		svg.addEventListener("keydown", function (ev) {
			const mid = at === null ? (plot.xr[0] + plot.xr[1]) / 2 : at;
			const half = (plot.xr[1] - plot.xr[0]) / 2;
			const way = {ArrowLeft: -1, ArrowRight: 1}[ev.key];
			if (ev.ctrlKey || ev.altKey || ev.metaKey)
				return;
			if (way) {
				if (at === null)
					at = nearest(way > 0 ? plot.xr[0] : plot.xr[1]);
				else
					for (let i = 0; i < (ev.shiftKey ? 10 : 1); i++)
						at = beside(at, way);
				cursor();
			} else if (ev.key === "Home" || ev.key === "End") {
				at = nearest(ev.key === "Home" ? plot.xr[0] : plot.xr[1]);
				cursor();
			} else if (ev.key === "+" || ev.key === "=") {
				zoom(mid - half / 2, mid + half / 2);
			} else if (ev.key === "-") {
				zoom(mid - half * 2, mid + half * 2);
			} else if (ev.key === "0") {
				zoom(-Infinity, Infinity);
			} else if (ev.key === "l") {
				toggle.click();
			} else if (ev.key === "Escape") {
				at = null;
				cursor();
			} else {
				return;
			}
			ev.preventDefault();
		});
		for (const s of series) {
			const b = node("button", legend, {type: "button", "aria-pressed": "true",
				title: "show or hide; double click: only this one"});
			node("span", b, {"class": s.key});
			b.append(s.name);
			s.button = b;
			b.addEventListener("click", function () {
				s.on = !s.on;
				press();
			});
			b.addEventListener("dblclick", function () {
				series.forEach(o => { o.on = o === s; });
				press();
			});
		}
		function press() {
			series.forEach(s => s.button.setAttribute("aria-pressed", String(s.on)));
			draw();
		}
		new ResizeObserver(function () {
			if (Math.abs(figure.clientWidth - 24 - width) > 1)
				draw();
		}).observe(figure);
		draw();
		return {draw: draw, figure: figure, thin: thin};
	};
})();

/* The data of <script type="application/json" id=ID>. */
function zdata(id) {
	return JSON.parse(document.getElementById(id).textContent);
}
