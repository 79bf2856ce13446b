"use strict";
/*
 * lanes.js -- how the files of each rank are cut, on a canvas: a lane is a rank, from left to right
 * are its bytes, state after state and piece after piece.
 *
 * A row's pieces are flat arrays; what is narrower than a pixel is drawn as one.  The canvas is as
 * tall as the box around it and follows its scroll bar, so that thousands of ranks need no more.
 */
function lanes_of(d, view) {
	const T = d.tensors, world = d.checkpoint.world, LABEL = 74, MOST_LABEL = 18, TOP = 16;
	const s = rp.section("lanes", world ? "How the files of each rank are cut" : "How the files are cut");
	const tied = new Set(T.alias.map(function (a) { return a[1]; }));
	const states = [];
	d.lanes.forEach(function (l) {
		if (states.indexOf(l.state) < 0)
			states.push(l.state);
	});
	if (!d.lanes.length) {
		rp.el("p", s, "muted", "No tensor has bytes in the files.");
		return;
	}

	/* ---- rows ---- */

	const table = [], by = new Map();
	function row_of(l) {
		const key = world ? l.rank : l.at[0][0];
		if (!by.has(key))
			by.set(key, { rank: l.rank, file: l.at[0][0], lanes: [], cache: {} });
		return by.get(key);
	}
	d.lanes.forEach(function (l) { row_of(l).lanes.push(l); });
	if (world) {
		for (let r = 0; r < world; r++)
			table.push(by.get(r) || { rank: r, lanes: [], cache: {} });
		if (by.has(null))
			table.push(by.get(null));
	} else {
		by.forEach(function (r) { table.push(r); });
	}
	function base(path) {
		return path.slice(path.lastIndexOf("/") + 1);
	}
	function nothing() {
		return (d.whole ? "no element of a tensor" : "nothing readable") +
		       (state < 0 ? "" : " of this state");
	}
	function label(row) {
		return world ? row.rank === null ? "any rank" : "rank " + row.rank : rp.show(base(d.files[row.file]));
	}

	/* Pieces of a row: {lane, seg, i, at, width} as columns, places in bytes. */
	function pieces(row, state) {
		if (row.cache[state])
			return row.cache[state];
		const x = [], w = [], lane = [], seg = [], at = [], begins = [];
		let here = 0;
		row.lanes.forEach(function (l, n) {
			if (state >= 0 && l.state !== states[state])
				return;
			d.layouts[l.layout].forEach(function (g, k) {
				for (let i = 0; i < g[2].length; i += 4) {
					const width = (g[2][i + 2] + g[2][i + 3]) * g[1] / 8;
					x.push(here);
					w.push(width);
					lane.push(n);
					seg.push(k);
					at.push(i);
					begins.push(i ? 0 : k ? 1 : 2);
					here += width;
				}
			});
		});
		return row.cache[state] = { x: x, w: w, lane: lane, seg: seg, at: at, begins: begins, all: here };
	}

	/* ---- what a piece is, as a line ---- */

	function place(row, p, i) {
		const l = row.lanes[p.lane[i]], g = d.layouts[l.layout][p.seg[i]], at = l.at[p.seg[i]];
		let off = at[1];
		for (let k = 0; k < p.at[i]; k += 4)
			off += (g[2][k + 2] + g[2][k + 3]) * g[1] / 8;
		return { lane: l, group: g[0], file: at[0], member: at[2], byte: off, bits: g[1], runs: g[3] || 1,
			 tensor: g[2][p.at[i]], first: g[2][p.at[i] + 1], count: g[2][p.at[i] + 2],
			 pad: g[2][p.at[i] + 3] };
	}
	function describe(row, p, i) {
		const q = place(row, p, i), t = q.tensor, role = T.roles[T.role[t]];
		const bytes = q.count * q.bits / 8;
		let text = label(row) + ", " + rp.show(q.lane.state) + ": ";
		if (q.first < 0)
			text += rp.count(-q.first) + " pieces from " + rp.show(T.name[t]) + " on (smaller than " +
				rp.size(d.merged_below) + ", shown together; zckpt map --all lists them), " +
				rp.size(bytes);
		else if (!q.count)
			text += rp.show(T.name[t]) + ": this rank has no element of it";
		else
			text += rp.show(T.name[t]) + " [" + T.shape[t].join(", ") + "], " + role +
				(tied.has(t) ? ", tied" : "") + (q.runs > 1 ? ", " + rp.count(q.runs) + " runs of " +
				rp.count(q.count / q.runs) + " elements, the first from element " :
				", elements ") + rp.count(q.first) + (q.runs > 1 ? " on," : q.count > 1 ? " to " + rp.count(q.first + q.count - 1) : "") + " of " +
				rp.count(d.numel[t]) + ", " + rp.size(bytes);
		text += ", " + rp.show(base(d.files[q.file])) + (q.member ? "!" + rp.show(q.member) : "");
		text += q.byte === null || isNaN(q.byte) ? "" : " at byte " + rp.count(q.byte);
		if (q.group >= 0)
			text += ", group " + q.group;
		if (q.pad)
			text += "; then " + rp.many(q.pad, "element") + " of padding";
		return text;
	}

	/* ---- controls ---- */

	const tools = rp.el("div", s, "tools");
	let state = -1, from = 0, to = 1, at_row = 0, at_piece = -1;
	rp.select(tools, "state", ["all"].concat(states.map(rp.show)), function (i) {
		state = i - 1;
		at_piece = -1;
		fit();
	});
	rp.button(tools, "+", "zoom in", function () { zoom(0.5); });
	rp.button(tools, "\u2212", "zoom out", function () { zoom(2); });
	rp.button(tools, "all", "show all bytes", fit);
	rp.el("span", tools, "muted", "arrow keys: pieces and ranks; + and \u2212 zoom; Enter: the tensor");
	const keys = rp.el("div", s, "keys");
	const used = new Set(T.role.map(function (r) { return T.roles[r]; }));
	[["trainable", "trainable", "var(--s0)"], ["trainable", "the next trainable", "var(--s7)"],
	 ["frozen", "frozen", "var(--frozen)"], ["buffer", "buffer", "var(--buffer)"],
	 ["untrained", "untrained", "var(--s4)"], ["alias", "tied", "var(--tied)"],
	 ["tensor", "tensor", "var(--plain)"], ["tensor", "the next tensor", "var(--s5)"], ["", "padding", ""]]
		.filter(function (k) { return k[0] ? used.has(k[0]) : d.checkpoint.world; })
		.forEach(function (k) {
			const e = rp.el("span", keys), c = rp.el("span", e, k[2] ? "key" : "key pad");
			if (k[2])
				c.style.setProperty("--k", k[2]);
			e.append(k[1]);
		});
	const box = rp.el("div", s, "lanes"), canvas = rp.el("canvas", box), space = rp.el("div", box, "space");
	const line = rp.el("div", s, "readout");
	line.setAttribute("aria-live", "polite");
	canvas.tabIndex = 0;
	canvas.setAttribute("role", "application");
	canvas.setAttribute("aria-label", "pieces of tensors in the files; arrow keys read them");
	if (d.merged_below)
		rp.el("p", s, "muted", rp.count(d.pieces) + " pieces are in the files; neighbours below " +
		      rp.size(d.merged_below) + " are drawn as one.");

	const LANE = Math.max(12, Math.min(30, Math.floor(420 / table.length))), GAP = 4;
	const widest = function () {
		return Math.max(1, table.reduce(function (n, r) { return Math.max(n, pieces(r, state).all); }, 0));
	};
	let all = 1, palette = null, paper = false;

	function colors() {
		const v = paper ? null : rp.color;
		const c = function (n, light) { return v ? v(n) : light; };
		palette = { bg: c("--bg", "#fff"), fg: c("--fg", "#000"), muted: c("--muted", "#444"),
			pad: c("--pad", "#b9c0c8"), line: c("--line", "#bbb"), accent: c("--accent", "#0757ba"),
			roles: { trainable: [c("--s0", "#0969da"), c("--s7", "#5b4fc4")],
				 frozen: [c("--frozen", "#57758f")], buffer: [c("--buffer", "#8a6d3b")],
				 untrained: [c("--s4", "#7a6400")], tensor: [c("--plain", "#1a7f37"), c("--s5", "#0a7d8c")] },
			tied: c("--tied", "#a0278f") };
	}
	function color_of(t) {
		if (tied.has(t))
			return palette.tied;
		const list = palette.roles[T.roles[T.role[t]]] || palette.roles.tensor;
		return list[t % list.length];
	}

	/* ---- drawing ---- */

	function lower(a, x) {	/* the last index whose value is at most x */
		let lo = 0, hi = a.length - 1;
		while (lo < hi) {
			const m = (lo + hi + 1) >> 1;
			if (a[m] <= x)
				lo = m;
			else
				hi = m - 1;
		}
		return lo;
	}
	function draw_row(g, row, y, width, h) {
		const p = pieces(row, state), scale = width / (to - from);
		let last = -1;
		g.fillStyle = palette.muted;
		g.textBaseline = "middle";
		if (h >= 11)
			g.fillText(label(row).slice(0, MOST_LABEL), 4, y + h / 2, LABEL - 8);
		if (!p.x.length) {
			g.fillText(nothing(), LABEL + 4, y + h / 2);
			return;
		}
		g.save();
		g.beginPath();
		g.rect(LABEL, y, width, h);
		g.clip();
		for (let i = lower(p.x, from); i < p.x.length && p.x[i] < to; i++) {
			const x0 = LABEL + (p.x[i] - from) * scale, w = p.w[i] * scale;
			if (w < 0.7 && Math.floor(x0) === last)
				continue;
			last = Math.floor(x0);
			const q = d.layouts[row.lanes[p.lane[i]].layout][p.seg[i]], k = p.at[i];
			const real = q[2][k + 2], pad = q[2][k + 3], part = w * real / (real + pad || 1);
			g.fillStyle = color_of(q[2][k]);
			g.fillRect(x0, y, Math.max(part - (part > 3 ? 0.7 : 0), real ? 0.7 : 0), h);
			if (pad && w - part > 0.3) {
				g.fillStyle = palette.pad;
				g.fillRect(x0 + part, y + h * 0.25, Math.max(w - part, 1), h * 0.5);
			}
			if (p.begins[i]) {
				g.fillStyle = palette.fg;
				g.fillRect(x0, y - (p.begins[i] > 1 ? 3 : 1), p.begins[i] > 1 ? 2 : 1, h + 3);
			}
			if (q[2][k + 1] >= 0 && part > 46 && h >= 18) {
				g.fillStyle = palette.bg;
				const name = T.name[q[2][k]];
				g.fillText(rp.show(name.length > 60 ? "\u2026" + name.slice(-58) : name)
					   .slice(0, Math.floor(part / 6.6)), x0 + 4, y + h / 2 + 0.5);
			}
		}
		g.restore();
	}
	/* The names of states above the lanes, where those of the row that is read begin. */
	function draw_states(g, width) {
		const row = table[at_row], p = pieces(row, state), scale = width / (to - from);
		let end = 0;
		g.fillStyle = palette.bg;
		g.fillRect(0, 0, width + LABEL, TOP);
		g.fillStyle = palette.muted;
		g.fillText("state", 4, TOP / 2, LABEL - 8);
		for (let i = 0; i < p.x.length; i++) {
			if (p.begins[i] !== 2)
				continue;
			let next = i + 1;
			while (next < p.x.length && p.begins[next] !== 2)
				next++;
			const stop = next < p.x.length ? p.x[next] : p.all;
			const x = Math.max(LABEL, LABEL + (p.x[i] - from) * scale, end);
			const text = rp.show(row.lanes[p.lane[i]].state);
			if (stop <= from || p.x[i] >= to || x + 20 > LABEL + (stop - from) * scale)
				continue;
			g.fillText(text, x + 2, TOP / 2, Math.max(20, LABEL + (stop - from) * scale - x - 4));
			end = x + g.measureText(text).width + 12;
		}
	}
	function mark(g, y, width, h) {
		const p = pieces(table[at_row], state), scale = width / (to - from);
		if (at_piece < 0 || at_piece >= p.x.length)
			return;
		const a = Math.max(LABEL, LABEL + (p.x[at_piece] - from) * scale);
		const b = Math.min(LABEL + width, LABEL + (p.x[at_piece] + p.w[at_piece] - from) * scale);
		g.strokeStyle = palette.fg;
		g.lineWidth = 2;
		if (b >= LABEL)
			g.strokeRect(a, y - 1, Math.max(b - a, 2), h + 2);
	}
	function draw() {
		const ratio = window.devicePixelRatio || 1, total = TOP + table.length * (LANE + GAP) + GAP;
		const W = Math.max(200, box.clientWidth), H = Math.min(total, paper ? 8000 : 460);
		if (canvas.width !== Math.round(W * ratio) || canvas.height !== Math.round(H * ratio)) {
			canvas.width = Math.round(W * ratio);
			canvas.height = Math.round(H * ratio);
			canvas.style.width = W + "px";
			canvas.style.height = H + "px";
			space.style.height = Math.max(0, total - H) + "px";
		}
		if (!palette)
			colors();
		const g = canvas.getContext("2d"), top = paper ? 0 : box.scrollTop;
		g.setTransform(ratio, 0, 0, ratio, 0, 0);
		g.font = "11px system-ui, sans-serif";
		g.fillStyle = palette.bg;
		g.fillRect(0, 0, W, H);
		for (let r = Math.max(0, Math.floor((top - TOP) / (LANE + GAP))); r < table.length; r++) {
			const y = TOP + GAP + r * (LANE + GAP) - top;
			if (y > H)
				break;
			draw_row(g, table[r], y, W - LABEL, LANE);
			if (r === at_row)
				mark(g, y, W - LABEL, LANE);
		}
		draw_states(g, W - LABEL);
	}
	let asked = false;
	function later() {
		if (!asked)
			requestAnimationFrame(function () {
				asked = false;
				draw();
			});
		asked = true;
	}

	/* ---- moving ---- */

	function fit() {
		all = widest();
		from = 0;
		to = all;
		later();
	}
	function clamp() {
		const w = Math.min(all, Math.max(16, to - from));
		from = Math.max(0, Math.min(all - w, from));
		to = from + w;
	}
	function zoom(by, where) {
		const p = pieces(table[at_row], state);
		const mid = where !== undefined ? where : at_piece >= 0 ? p.x[at_piece] + p.w[at_piece] / 2 :
			    (from + to) / 2;
		const part = Math.max(0, Math.min(1, (mid - from) / (to - from) || 0.5)), w = (to - from) * by;
		from = mid - part * w;
		to = from + w;
		clamp();
		later();
	}
	function select_piece(row, i, move) {
		const p = pieces(table[row], state);
		at_row = row;
		at_piece = Math.max(-1, Math.min(p.x.length - 1, i));
		line.textContent = at_piece < 0 ? label(table[row]) + ": " + nothing() :
				   describe(table[row], p, at_piece);
		if (move && at_piece >= 0) {
			if (p.x[at_piece] < from || p.x[at_piece] + p.w[at_piece] > to) {
				const w = to - from;
				from = p.x[at_piece] + p.w[at_piece] / 2 - w / 2;
				to = from + w;
				clamp();
			}
			const y = row * (LANE + GAP);
			if (y < box.scrollTop)
				box.scrollTop = y;
			else if (TOP + y + LANE + 2 * GAP > box.scrollTop + box.clientHeight)
				box.scrollTop = TOP + y + LANE + 2 * GAP - box.clientHeight;
		}
		later();
	}
	function under(ev) {
		const r = canvas.getBoundingClientRect(), width = r.width - LABEL;
		const row = Math.floor((ev.clientY - r.top + box.scrollTop - TOP - GAP / 2) / (LANE + GAP));
		const x = from + (ev.clientX - r.left - LABEL) / width * (to - from);
		if (row < 0 || row >= table.length || ev.clientX < r.left + LABEL)
			return null;
		const p = pieces(table[row], state);
		return { row: row, x: x, i: x < p.all && p.x.length ? lower(p.x, x) : -1 };
	}
	function open() {
		const p = pieces(table[at_row], state);
		if (at_piece >= 0)
			view.open(place(table[at_row], p, at_piece).tensor);
	}
	let drag = null;
	canvas.addEventListener("pointerdown", function (ev) {
		drag = { x: ev.clientX, from: from, to: to, moved: false };
	});
	window.addEventListener("pointerup", function () { drag = null; });
	canvas.addEventListener("pointermove", function (ev) {
		if (drag && Math.abs(ev.clientX - drag.x) > 3) {
			const w = drag.to - drag.from;
			drag.moved = true;
			from = drag.from - (ev.clientX - drag.x) / (canvas.clientWidth - LABEL) * w;
			to = from + w;
			clamp();
			later();
			return;
		}
		const u = under(ev);
		if (u && u.i >= 0)
			select_piece(u.row, u.i);
	});
	canvas.addEventListener("click", function (ev) {
		const u = under(ev);
		if (u && u.i >= 0 && ev.detail > 1) {
			select_piece(u.row, u.i);
			open();
		}
	});
	canvas.addEventListener("wheel", function (ev) {
		if (!ev.ctrlKey && !ev.shiftKey)
			return;		/* the page scrolls */
		const u = under(ev);
		ev.preventDefault();
		zoom(ev.deltaY + ev.deltaX < 0 ? 0.8 : 1.25, u ? u.x : undefined);
	}, { passive: false });
	canvas.addEventListener("keydown", function (ev) {
		const p = pieces(table[at_row], state), n = table.length - 1;
		let done = true;
		if (ev.key === "ArrowRight")
			select_piece(at_row, at_piece + 1, true);
		else if (ev.key === "ArrowLeft")
			select_piece(at_row, Math.max(0, at_piece - 1), true);
		else if (ev.key === "ArrowDown" || ev.key === "ArrowUp") {
			const row = Math.max(0, Math.min(n, at_row + (ev.key === "ArrowDown" ? 1 : -1)));
			const x = at_piece >= 0 ? p.x[at_piece] + p.w[at_piece] / 2 : from, q = pieces(table[row], state);
			select_piece(row, q.x.length ? lower(q.x, x) : -1, true);
		} else if (ev.key === "Home")
			select_piece(at_row, 0, true);
		else if (ev.key === "End")
			select_piece(at_row, p.x.length - 1, true);
		else if (ev.key === "+" || ev.key === "=")
			zoom(0.5);
		else if (ev.key === "-")
			zoom(2);
		else if (ev.key === "0")
			fit();
		else if (ev.key === "Enter")
			open();
		else
			done = false;
		if (done)
			ev.preventDefault();
	});
	box.addEventListener("scroll", later);
	window.addEventListener("resize", later);
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
		palette = null;
		later();
	});
	function print(on) {
		paper = on;
		palette = null;
		draw();
	}
	window.addEventListener("beforeprint", function () { print(true); });
	window.addEventListener("afterprint", function () { print(false); });

	tensor_bytes(d);	/* makes d.numel */
	all = widest();
	to = all;
	draw();

	/* Pieces of one tensor, for its table. */
	view.pieces = function (t, most) {
		const out = [];
		let merged = false;
		table.forEach(function (row) {
			row.lanes.forEach(function (l) {
				d.layouts[l.layout].forEach(function (g, k) {
					let off = l.at[k][1];
					for (let i = 0; i < g[2].length; i += 4) {
						if (g[2][i] === t && g[2][i + 1] >= 0 && g[2][i + 2])
							out.push([row, l, g, k, i, off]);
						merged = merged || g[2][i + 1] < 0;
						off += (g[2][i + 2] + g[2][i + 3]) * g[1] / 8;
					}
				});
			});
		});
		return { n: out.length, merged: merged, rows: out.slice(0, most).map(function (x) {
			const g = x[2][2], i = x[4], at = x[1].at[x[3]];
			return [x[1].state, x[0].rank === null ? "-" : x[0].rank,
				x[2][3] ? rp.count(x[2][3]) + " runs from " + rp.count(g[i + 1]) + " on, " +
					  rp.count(g[i + 2]) + " in all" :
					  rp.count(g[i + 1]) + "\u2013" + rp.count(g[i + 1] + g[i + 2] - 1),
				base(d.files[at[0]]) + (at[2] ? "!" + at[2] : ""), rp.count(x[5])];
		}) };
	};
}
