"use strict";
/*
 * report.js -- the page of zckpt report: its head, and the sections that are tables.
 *
 * Every text of a checkpoint goes through rp.show() into textContent: names are whatever a file
 * says.  The data are described in docs/guide/report.md.
 */
var rp = (function () {
	/* Controls, marks that reorder text, and halves of pairs, as escapes. */
	const ODD = new RegExp("[\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200b-\\u200f\\u2028-\\u202e" +
			       "\\u2060-\\u206f\\ufeff\\ud800-\\udfff]", "u");
	const ODDS = new RegExp(ODD.source, "gu");
	const LONG = 400;

	function show(text) {
		const s = String(text);
		const cut = s.length > LONG ? s.slice(0, LONG - 60) + " \u2026 " + s.slice(-50) : s;
		return ODD.test(cut) ? cut.replace(ODDS, function (c) {
			return "\\u{" + c.codePointAt(0).toString(16) + "}";
		}) : cut;
	}
	function el(tag, parent, cls, text) {
		const e = document.createElement(tag);
		if (cls)
			e.className = cls;
		if (text !== undefined && text !== null)
			e.textContent = show(text);
		if (parent)
			parent.appendChild(e);
		return e;
	}
	/* A name from a file: its own direction of writing, and whole in a tooltip. */
	function name(parent, text, tag) {
		const e = el(tag || "span", parent, "nm", text);
		e.dir = "auto";
		return e;
	}
	function svg(tag, parent, attrs, text) {
		const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
		for (const k in attrs || {})
			e.setAttribute(k, attrs[k]);
		if (text !== undefined)
			e.textContent = text;
		if (parent)
			parent.appendChild(e);
		return e;
	}
	function size(n) {
		const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
		let u = 0;
		while (n >= (u ? 999.95 : 1000) && u < 6) {
			n /= 1000;
			u++;
		}
		return (u ? n.toFixed(1) : Math.round(n)) + " " + units[u];
	}
	function count(n) {
		return Math.round(n).toLocaleString("en-US");
	}
	/* "134.1 M", as inspect has it */
	function about(n) {
		return n >= 1e9 ? (n / 1e9).toFixed(2) + " B" : n >= 1e6 ? (n / 1e6).toFixed(1) + " M" : count(n);
	}
	function many(n, word) {
		return count(n) + " " + word + (n === 1 ? "" : "s");
	}
	function real(v, digits) {
		if (typeof v !== "number")
			return v === null || v === undefined ? "-" : v;
		const a = Math.abs(v);
		if (v && (a < 1e-3 || a >= 1e6))
			return v.toExponential((digits || 4) - 1);
		return String(+v.toPrecision(digits || 5));
	}
	function section(id, title) {
		const s = el("section", document.getElementById("main"));
		s.id = id;
		el("h2", s, "", title);
		const a = el("a", document.getElementById("toc"), "", title);
		a.href = "#" + id;
		return s;
	}
	/* heads: "text", or "#text" of a column of numbers; a cell is a text or an element. */
	function table(parent, heads, rows, caption) {
		const t = el("table", el("div", parent, "scroll"));
		if (caption)
			el("caption", t, "", caption);
		const head = el("tr", el("thead", t));
		heads.forEach(function (h) {
			const num = h[0] === "#";
			el("th", head, num ? "num" : "", num ? h.slice(1) : h).scope = "col";
		});
		const body = el("tbody", t);
		rows.forEach(function (r) {
			const tr = el("tr", body);
			r.forEach(function (c, i) {
				const td = el("td", tr, heads[i][0] === "#" ? "num" : i ? "nm" : "");
				if (c instanceof Node)
					td.appendChild(c);
				else
					td.textContent = show(c);
			});
		});
		return t;
	}
	function select(parent, label, list, change) {
		const l = el("label", parent, "", label + " ");
		const s = el("select", l);
		list.forEach(function (o, i) {
			el("option", s, "", o).value = i;
		});
		s.addEventListener("change", function () {
			change(+s.value);
		});
		return s;
	}
	function button(parent, text, label, press) {
		const b = el("button", parent, "", text);
		b.type = "button";
		if (label)
			b.setAttribute("aria-label", label);
		b.addEventListener("click", press);
		return b;
	}
	function color(name) {
		return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
	}

	/*
	 * Bars of values from left to right: {label: i => text, values, title, log, color}.  Arrow
	 * keys walk through them; the line below says which one the mouse or the key is at.
	 */
	function bars(parent, o) {
		const box = el("div", parent, "bars"), W = 600, H = 170, B = 18, n = o.values.length;
		const good = o.values.filter(function (v) { return isFinite(v) && v > 0; });
		const most = good.length ? Math.max.apply(null, good) : 0;
		const least = good.length ? Math.min.apply(null, good) : 0;
		const log = o.log && least > 0 && most > least;
		const floor = log ? Math.log10(least) - 0.5 : 0, roof = log ? Math.log10(most) : most;
		if (o.title)
			el("h3", box, "", o.title);
		const s = svg("svg", box, { viewBox: "0 0 " + W + " " + H, preserveAspectRatio: "none",
			tabindex: 0, role: "img", "aria-label": (o.title || "bars") + ", " +
			many(n, "bar") + "; arrow keys read them" });
		const line = el("div", box, "readout");
		line.setAttribute("aria-live", "polite");
		const list = [], w = W / Math.max(n, 1);
		o.values.forEach(function (v, i) {
			const up = v > 0 ? (log ? (Math.log10(v) - floor) / (roof - floor || 1) :
						  v / (roof || 1)) : 0;
			const h = !isFinite(v) ? H - B : up > 0 ? Math.max(1, up * (H - B)) : 0;
			list.push(svg("rect", s, { x: i * w, y: H - B - h,
				width: Math.max(w - (w > 3 ? 1 : 0), 0.5), height: h }));
		});
		svg("line", s, { x1: 0, x2: W, y1: H - B, y2: H - B });
		if (o.tick && n) {
			const marks = el("div", null, "ticks");
			box.insertBefore(marks, line);
			for (let i = 0, step = Math.max(1, Math.ceil(n / 10)); i < n; i += step)
				el("span", marks, "nm", o.tick(i)).style.flex = Math.min(step, n - i) + " 1 0";
		}
		const rest = (o.note || "") + (most ? "; the axis ends at " + real(most) +
			     (log ? ", logarithmic from " + real(Math.pow(10, floor)) : "") : "");
		let at = -1;
		line.textContent = rest;
		function go(i) {
			if (at >= 0)
				list[at].removeAttribute("class");
			at = i;
			if (i >= 0)
				list[i].setAttribute("class", "on");
			line.textContent = i < 0 ? rest : show(o.label(i));
		}
		s.addEventListener("pointermove", function (ev) {
			const r = s.getBoundingClientRect();
			go(Math.max(0, Math.min(n - 1, Math.floor((ev.clientX - r.left) / r.width * n))));
		});
		s.addEventListener("pointerleave", function () { go(-1); });
		s.addEventListener("keydown", function (ev) {
			const step = { ArrowRight: 1, ArrowLeft: -1, Home: -n, End: n }[ev.key];
			if (ev.key === "Escape")
				go(-1);
			if (ev.key === "Enter" && at >= 0 && o.pick)
				o.pick(at);
			if (!step || !n)
				return;
			ev.preventDefault();
			go(Math.max(0, Math.min(n - 1, at + step)));
		});
		if (o.pick)
			s.addEventListener("click", function () { if (at >= 0) o.pick(at); });
		return box;
	}

	/* A list of any length: only rows that are visible exist. */
	function rows(parent, label, cls, fill, pick) {
		const H = 26, box = el("div", parent, "list " + cls), space = el("div", box);
		let list = [], on = -1, made = new Map();
		box.tabIndex = 0;
		box.setAttribute("role", "listbox");
		box.setAttribute("aria-label", label);
		/* a browser cuts elements above some millions of pixels: then a row is less of the bar */
		function scale() {
			return Math.max(1, list.length * H / 8e6);
		}
		function draw() {
			const first = Math.max(0, Math.floor(box.scrollTop * scale() / H) - 4);
			const last = Math.min(list.length, first + Math.ceil(box.clientHeight / H) + 8);
			for (const [i, e] of made)
				if (i < first || i >= last) {
					e.remove();
					made.delete(i);
				}
			for (let i = first; i < last; i++) {
				let e = made.get(i);
				if (!e) {
					e = el("div", box, "row");
					e.id = cls + "-" + i;
					e.setAttribute("role", "option");
					fill(e, list[i], i);
					made.set(i, e);
				}
				e.style.top = (box.scrollTop + i * H - box.scrollTop * scale()) + "px";
				e.classList.toggle("on", i === on);
				e.setAttribute("aria-selected", i === on);
			}
		}
		function go(i, quiet) {
			if (!list.length)
				return;
			on = Math.max(0, Math.min(list.length - 1, i));
			const top = on * H, view = box.scrollTop * scale();
			if (top < view)
				box.scrollTop = top / scale();
			else if (top + H > view + box.clientHeight)
				box.scrollTop = (top + H - box.clientHeight) / scale();
			draw();
			box.setAttribute("aria-activedescendant", cls + "-" + on);
			if (!quiet)
				pick(list[on]);
		}
		box.addEventListener("scroll", draw);
		box.addEventListener("click", function (ev) {
			const row = ev.target.closest(".row");
			if (row)
				go(+row.id.slice(cls.length + 1));
		});
		box.addEventListener("keydown", function (ev) {
			const page = Math.floor(box.clientHeight / H) - 1;
			const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
				       Home: -Infinity, End: Infinity }[ev.key];
			if (step === undefined)
				return;
			ev.preventDefault();
			go(step === Infinity ? list.length - 1 : Math.max(0, on + step));
		});
		return {
			set: function (l) {
				list = l;
				on = -1;
				made.forEach(function (e) { e.remove(); });
				made.clear();
				space.style.height = Math.min(list.length * H, 8e6) + "px";
				box.scrollTop = 0;
				draw();
			},
			go: go, box: box, index: function (x) { return list.indexOf(x); }
		};
	}

	return { show, el, name, svg, size, count, about, many, real, section, table, select, button, color,
		 bars, rows };
})();

/* ---------------------------------------------------------------- the head */

function head(d, lines) {
	const h = document.getElementById("head");
	rp.name(h, d.title, "h1");
	lines.forEach(function (l) {
		rp.el("p", h, l[0], l[1]);
	});
	const nav = rp.el("nav", h, "toc");
	nav.id = "toc";
	nav.setAttribute("aria-label", "sections");
}

function checked_text(d) {
	if (!d.verified.full)
		return "Headers and structure were read, and of the tensors " + { none: "nothing", all:
			"every element, for statistics", sample: "a sample, for statistics" }[d.stats.mode] +
			"; checksums were not compared. --verify reads every byte and compares them.";
	return "Every byte was read: " + rp.size(d.verified.read_bytes) + ", " +
	       rp.many(d.verified.checksums, "checksum") + " compared" +
	       (d.verified.without_sums ? "; " + rp.many(d.verified.without_sums, "tensor") +
		" without a checksum" : "") + ".";
}

function head_of(d) {
	const c = d.checkpoint;
	head(d, [["answer " + (d.whole ? "good" : "bad"), d.answer], ["muted mono", c.path],
		 [d.verified.full ? "" : "muted", checked_text(d)]].concat(d.whole ? [] :
		[["warn", "The pictures below show what is readable."]]));
	const cards = rp.el("div", document.getElementById("main"), "cards");
	[[rp.about(c.parameters), "parameters"], [rp.size(c.file_bytes), rp.many(c.files, "file")],
	 [c.format, c.writer || "format"], [c.stage === null ? "-" : c.stage, "ZeRO stage"],
	 [c.world || "-", "ranks"], [c.step === null ? "-" : rp.count(c.step), "step"],
	 [rp.count(c.tensors), "tensors"]].forEach(function (k) {
		const card = rp.el("div", cards, "card");
		rp.el("b", card, "nm", k[0]);
		rp.el("span", card, "nm", k[1]);
	});
}

function findings_of(d) {
	const s = rp.section("findings", "Findings");
	if (!d.findings.length)
		rp.el("p", s, "good", "None.");
	d.findings.forEach(function (f) {
		const box = rp.el("div", s, "finding " + f.severity);
		const p = rp.el("p", box);
		rp.el("b", p, "", f.severity + " " + f.id);
		rp.el("span", p, "nm", ": " + (f.where ? f.where + ": " : "") + f.text +
		      (f.count > 1 ? " (" + f.count + " times)" : ""));
		if (f.command) {
			rp.el("span", rp.el("p", box, "muted", ""), "", "What helps: ");
			rp.el("code", box.lastChild, "", f.command);
		}
		if (f.page) {
			const more = rp.el("details", box);
			rp.el("summary", more, "muted", "zckpt explain " + f.id);
			rp.el("pre", more).textContent = f.page;
		}
	});
	if (d.next)
		rp.el("code", rp.el("p", s, "", "Next: "), "", d.next);
}

/* ---------------------------------------------------------------- tables */

function steps_of(d) {
	if (!d.steps)
		return;
	const s = rp.section("steps", "Steps of this folder");
	const most = Math.max.apply(null, d.steps.map(function (x) { return x.bytes; }));
	rp.table(s, ["step", "time (UTC)", "#size", "", "complete", "ranks", "name"],
		 d.steps.map(function (x) {
			const bar = rp.el("div", null, "bar"), name = rp.el("span", null, "nm", x.name +
				(x.latest ? " (latest)" : "") + (x.shown ? ", shown below" : ""));
			const done = rp.el("b", null, x.complete === "yes" ? "good" : "bad", x.complete);
			rp.el("span", bar).style.width = 100 * x.bytes / (most || 1) + "%";
			if (x.shown)
				name.style.fontWeight = "600";
			if (x.why)
				rp.el("div", name, "muted", x.why);
			return [x.step === null ? "-" : x.step, (x.time || "-").slice(0, 16).replace("T", " "),
				rp.size(x.bytes), bar, done, x.world || "-", name];
		 }));
}

function log_of(d) {
	if (!d.log)
		return;
	const l = d.log, s = rp.section("loss", "Training log");
	const box = rp.el("div", s, "charts");
	const groups = [["loss", /loss/i, true], ["norm of the gradients", /^grad_norm$/, true],
			["learning rate", /^lr$/, false]];
	groups.forEach(function (g) {
		const list = l.series.filter(function (x) { return g[1].test(x.name) && x.step.length; });
		if (list.length)
			zchart(box, { title: g[0], log: false, wide: g[0] === "loss", xlabel: "step",
				series: list.map(function (x) {
					return { name: rp.show(x.name), x: x.step, y: x.value };
				}) });
	});
	const notes = [];
	if (!l.entries)
		notes.push("the log has no entries");
	if (l.restarts)
		notes.push(rp.many(l.restarts, "restart") + "; of a step that was logged twice the later " +
			   "value counts (" + rp.many(l.replaced, "value") + " replaced)");
	if (l.torn_bytes)
		notes.push("the last line is cut short (" + rp.size(l.torn_bytes) + ")");
	if (l.bad)
		notes.push(rp.many(l.bad, "line") + " could not be read");
	rp.el("p", s, "muted nm", l.path + ", steps " + rp.count(l.first) + " to " + rp.count(l.last) +
	      (notes.length ? ": " + notes.join("; ") : ""));
}

function share(parent, bytes, all) {
	const bar = rp.el("div", parent, "bar s0");
	rp.el("span", bar).style.width = 100 * bytes / (all || 1) + "%";
	return bar;
}

function sizes_of(d) {
	const s = rp.section("sizes", "What the bytes on disk are for");
	if (!d.sizes) {
		rp.el("p", s, "warn", "The sizes could not be read: " + d.sizes_error);
	} else {
		rp.table(s, ["bytes are for", "type", "#elements", "#size", "share"],
			 d.sizes.parts.slice().sort(function (a, b) { return b.bytes - a.bytes; })
			 .map(function (p) {
				return [p.what, p.dtype, p.elements ? rp.count(p.elements) : "",
					rp.size(p.bytes), share(null, p.bytes, d.sizes.bytes)];
			 }), "all of " + rp.many(d.sizes.files, "file") + ": " + rp.size(d.sizes.bytes));
	}
	const all = d.states.reduce(function (n, x) { return n + (x.derived ? 0 : x.bytes); }, 0);
	rp.table(s, ["state", "type", "#tensors", "#elements", "#bytes", "share"],
		 d.states.map(function (x) {
			return [x.name, x.dtype, rp.count(x.tensors), rp.count(x.elements),
				x.derived ? "not stored" : rp.size(x.bytes),
				x.derived ? "" : share(null, x.bytes, all)];
		 }), "states and types");
}

/* Bytes of each rank and state; equal neighbours are one row. */
function balance_of(d) {
	if (!d.checkpoint.world)
		return;
	const s = rp.section("balance", "Balance over ranks");
	const states = [], by = [];
	const bytes = d.layouts.map(function (l) {
		return l.reduce(function (n, seg) {
			for (let i = 2; i < seg[2].length; i += 4)
				n += (seg[2][i] + seg[2][i + 1]) * seg[1] / 8;
			return n;
		}, 0);
	});
	for (let r = 0; r < d.checkpoint.world; r++)
		by.push({ all: 0 });
	let any = 0;
	d.lanes.forEach(function (l) {
		if (l.rank === null || !by[l.rank]) {
			any += bytes[l.layout];
			return;
		}
		if (states.indexOf(l.state) < 0)
			states.push(l.state);
		by[l.rank][l.state] = (by[l.rank][l.state] || 0) + bytes[l.layout];
		by[l.rank].all += bytes[l.layout];
	});
	const most = Math.max.apply(null, by.map(function (x) { return x.all; }));
	const mean = by.reduce(function (n, x) { return n + x.all; }, 0) / by.length;
	const list = [];
	by.forEach(function (x, r) {
		const last = list[list.length - 1], key = states.map(function (n) { return x[n]; }).join();
		if (last && last.key === key)
			last.to = r;
		else
			list.push({ key: key, from: r, to: r, x: x });
	});
	const keys = rp.el("div", s, "keys");
	states.forEach(function (n, i) {
		const k = rp.el("span", keys, "nm s" + i % 10);
		rp.el("span", k, "key").style.background = "var(--c)";
		k.append(rp.show(n));
	});
	rp.table(s, ["rank"].concat(states.map(function (n) { return "#" + n; }), ["#total", ""]),
		 list.slice(0, 64).map(function (g) {
			const bar = rp.el("div", null, "bar");
			states.forEach(function (n, i) {
				rp.el("span", bar, "s" + i % 10).style.width =
					100 * (g.x[n] || 0) / (most || 1) + "%";
			});
			return [g.from === g.to ? g.from : g.from + "-" + g.to].concat(
				states.map(function (n) { return g.x[n] ? rp.size(g.x[n]) : "-"; }),
				[rp.size(g.x.all), bar]);
		 }));
	rp.el("p", s, "muted", "A rank has " + rp.size(mean) + " on average and " + rp.size(most) +
	      " at most: " + (mean ? (most / mean).toFixed(3) : "1") + " times the mean, with padding." +
	      (any ? " Files of no single rank have " + rp.size(any) + " more." : "") +
	      (list.length > 64 ? " " + (list.length - 64) + " more rows: zckpt map --json." : ""));
}

function facts_of(d) {
	if (!d.facts.length)
		return;
	const s = rp.section("facts", "Step, groups and counters"), groups = [], keys = [], rest = [];
	d.facts.forEach(function (f) {
		const m = /^group\.(\d+)\.(.*)$/.exec(f[0]);
		if (!m || +m[1] > 1000) {
			rest.push(f);
			return;
		}
		groups[+m[1]] = groups[+m[1]] || {};
		groups[+m[1]][m[2]] = f[1];
		if (keys.indexOf(m[2]) < 0)
			keys.push(m[2]);
	});
	const value = function (g, k) {
		return g && k in g ? g[k] : "-";
	};
	/* few groups are columns, many are rows */
	if (groups.length && groups.length <= 5)
		rp.table(s, ["setting"].concat(groups.map(function (g, i) { return "group " + i; })),
			 keys.map(function (k) {
				return [k].concat(groups.map(function (g) { return value(g, k); }));
			 }), "optimizer groups and their hyper-parameters").className = "facts";
	else if (groups.length)
		rp.table(s, ["group"].concat(keys), groups.map(function (g, i) {
			return [i].concat(keys.map(function (k) { return value(g, k); }));
		}), "optimizer groups and their hyper-parameters");
	if (rest.length)
		rp.table(s, ["fact", "value"], rest).className = "facts";
}

/* ---------------------------------------------------------------- all of it */

/* What follows '#' opens the page at a tensor: report.html#tensor=model.norm.weight */
function open_hash(view) {
	const m = /^#tensor=(.*)$/.exec(location.hash);
	if (!m)
		return;
	try {
		view.open_name(decodeURIComponent(m[1]));
	} catch (e) {
		view.open_name(m[1]);
	}
}

function report(d) {
	const t0 = performance.now(), main = document.getElementById("main");
	if (d.kind === "diff") {
		report_diff(d);
	} else {
		head_of(d);
		findings_of(d);
		steps_of(d);
		log_of(d);
		const view = {};
		lanes_of(d, view);
		tree_of(d, view);
		balance_of(d);
		sizes_of(d);
		list_of(d, view);
		facts_of(d);
		open_hash(view);
		window.addEventListener("hashchange", function () { open_hash(view); });
	}
	const foot = rp.el("footer", document.body, "");
	rp.el("span", foot, "", "zckpt " + d.zckpt + " report. This page loads nothing from a network.");
	main.dataset.ready = Math.round(performance.now() - t0);
}
