"use strict";
/* diff.js -- the page of two checkpoints: side by side, and what differs, layer by layer. */
function report_diff(d) {
	const C = {};
	d.columns.forEach(function (c, i) { C[c] = i; });
	head(d, [["answer" + (d.equal ? " good" : ""), d.answer], ["muted", d.verified ?
		"Every byte of both was read and compared with its checksum first." :
		"The elements of both were compared; checksums were not: --verify does that first."]]);
	sides(d);
	const layers = by_layer(d, C);
	if (layers.states.length)
		layer_bars(d, layers);
	diff_list(d, C);
	scalars(d);

	function sides() {
		const s = rp.section("sides", "Side by side");
		const line = function (label, get) {
			const a = String(get(d.a)), b = String(get(d.b)), e = rp.el("b", null, "nm", b);
			return [label, a, a === b ? b : e];
		};
		const known = function (v) { return v === null || v === "" ? "-" : v; };
		rp.table(s, ["", "A", "B"], [
			line("path", function (x) { return x.path; }),
			line("what it is", function (x) { return x.answer; }),
			line("format", function (x) { return x.format; }),
			line("written by", function (x) { return known(x.writer); }),
			line("step", function (x) { return known(x.step); }),
			line("ZeRO stage", function (x) { return known(x.stage); }),
			line("ranks", function (x) { return x.world || "-"; }),
			line("parameters", function (x) { return rp.count(x.parameters); }),
			line("tensors", function (x) { return rp.count(x.tensors); }),
			line("size", function (x) { return rp.size(x.file_bytes) + " in " + rp.many(x.files, "file"); }),
			line("findings", function (x) {
				return x.findings.map(function (f) { return f.severity + " " + f.id; }).join(", ") || "none";
			}),
		]);
	}
	function scalars() {
		const list = d.scalars.filter(function (x) { return x.a !== x.b; });
		if (!d.scalars.length)
			return;
		const s = rp.section("scalars", "Step, groups and counters");
		if (!list.length)
			rp.el("p", s, "good", "All " + rp.many(d.scalars.length, "value") + " are the same.");
		else
			rp.table(s, ["value", "A", "B", "counts as a difference"], list.map(function (x) {
				return [x.key, x.a === undefined ? "missing" : x.a, x.b === undefined ? "missing" : x.b,
					x.differs ? "yes" : "no"];
			})).className = "facts";
	}
}

function state_of_row(r, C) {
	const a = r[C.state_a], b = r[C.state_b];
	return a && b && a !== b ? a + "=" + b : a || b || "";
}

/* The largest of each measure over the tensors of a layer; "model.layers.12.x" is layer 12. */
function by_layer(d, C) {
	const names = [], number = new Map(), states = [], cells = new Map();
	d.rows.forEach(function (r) {
		const state = state_of_row(r, C), m = /^(.*?)\.(\d+)(\.|$)/.exec(r[C.name]);
		/* counters and masks have no place on an axis of weights; the list has them */
		if (!state || /^(I|U|BOOL)/.test(r[C.dtype_a] || r[C.dtype_b] || "I"))
			return;
		const dot = r[C.name].lastIndexOf("."), module = dot < 0 ? r[C.name] : r[C.name].slice(0, dot);
		const layer = m ? m[1] + "." + m[2] : module;
		if (!number.has(layer)) {
			number.set(layer, names.length);
			names.push({ name: layer, n: m ? +m[2] : -1, head: m ? m[1] : layer });
		}
		if (states.indexOf(state) < 0)
			states.push(state);
		const key = state + "\n" + layer, c = cells.get(key) ||
			{ max_abs: 0, rms: 0, rel_l2: 0, differ: 0, tensors: 0, sum: 0, elements: 0 };
		const num = function (v) { return typeof v === "number" ? v : Infinity; };
		c.max_abs = Math.max(c.max_abs, num(r[C.max_abs]));
		c.rel_l2 = Math.max(c.rel_l2, num(r[C.rel_l2]));
		c.sum += num(r[C.rms]) * num(r[C.rms]) * r[C.elements];
		c.elements += r[C.elements];
		c.rms = Math.sqrt(c.sum / (c.elements || 1));
		c.differ += r[C.differ];
		c.tensors++;
		cells.set(key, c);
	});
	names.sort(function (a, b) {
		return a.head === b.head ? a.n - b.n : a.n < 0 !== b.n < 0 ? (a.n < 0 ? 1 : -1) :
		       a.head < b.head ? -1 : 1;
	});
	return { names: names, states: states, get: function (state, layer) {
		return cells.get(state + "\n" + layer) || { max_abs: 0, rms: 0, rel_l2: 0, differ: 0, tensors: 0 };
	} };
}

function layer_bars(d, layers) {
	const s = rp.section("layers", "Differences by layer"), tools = rp.el("div", s, "tools");
	const measures = [["max_abs", "largest |a \u2212 b|"], ["rms", "rms of a \u2212 b"],
			  ["rel_l2", "relative: |a \u2212 b| / max(|a|, |b|), as norms"]];
	let measure = 0, log = 1;
	const box = rp.el("div", s);
	rp.select(tools, "measure", measures.map(function (m) { return m[1]; }), function (i) {
		measure = i;
		draw();
	});
	rp.select(tools, "axis", ["logarithmic", "linear"], function (i) {
		log = !i;
		draw();
	});
	function draw() {
		box.textContent = "";
		layers.states.forEach(function (state, k) {
			const cells = layers.names.map(function (l) { return layers.get(state, l.name); });
			const has = layers.names.filter(function (l, i) { return cells[i].tensors; });
			if (!has.length)
				return;
			const list = has.map(function (l) { return layers.get(state, l.name); });
			const values = list.map(function (c) { return c[measures[measure][0]]; });
			const most = values.reduce(function (a, b) { return Math.max(a, b); }, 0);
			const bars = rp.bars(box, { title: state + ": " + measures[measure][1], values: values, log: log,
				tick: function (i) {
					return has[i].n < 0 || !i || has[i - 1].head !== has[i].head ? has[i].name :
					       String(has[i].n);
				},
				note: most ? "the largest is in " + rp.show(has[values.indexOf(most)].name) :
				      "no difference",
				label: function (i) {
					const c = list[i];
					return has[i].name + ": max " + rp.real(c.max_abs) + ", rms " + rp.real(c.rms) +
					       ", relative " + rp.real(c.rel_l2) + ", " + rp.many(c.differ, "element") +
					       " differ in " + rp.many(c.tensors, "tensor");
				} });
			bars.classList.add("s" + k % 10);
		});
	}
	draw();
}

function diff_list(d, C) {
	const s = rp.section("rows", "Tensors");
	const list = d.rows.filter(function (r) { return r[C.counts] || r[C.differ] || r[C.what] !== "same"; });
	const differ = list.filter(function (r) { return r[C.counts]; }).length;
	rp.el("p", s, differ ? "" : "good", rp.count(differ) + " of " + rp.many(d.rows.length, "state") +
	      " of tensors differ.");
	if (!list.length)
		return;
	const tools = rp.el("div", s, "tools"), field = rp.el("input", tools);
	field.type = "search";
	field.placeholder = "name, state, or what differs";
	field.setAttribute("aria-label", "search of differences");
	const heads = rp.el("div", s, "heads diff");
	["tensor", "state", "#differ", "#max", "#rms", "#relative"].forEach(function (h) {
		rp.el("span", heads, h[0] === "#" ? "num" : "", h.replace("#", ""));
	});
	const detail = rp.el("div", null, "detail");
	const text = list.map(function (r) {
		return (r[C.name] + " " + state_of_row(r, C) + " " + r[C.what]).toLowerCase();
	});
	const view = rp.rows(s, "tensors that differ", "diff", function (e, i) {
		const r = list[i];
		rp.name(e, r[C.name]).title = rp.show(r[C.name]);
		rp.el("span", e, "muted", state_of_row(r, C) || r[C.what]);
		rp.el("span", e, "num", r[C.differ] ? rp.count(r[C.differ]) : r[C.what]);
		rp.el("span", e, "num", rp.real(r[C.max_abs], 3));
		rp.el("span", e, "num", rp.real(r[C.rms], 3));
		rp.el("span", e, "num", rp.real(r[C.rel_l2], 3));
	}, function (i) {
		const r = list[i];
		detail.textContent = "";
		rp.name(detail, r[C.name], "h3");
		rp.el("p", detail, "", (state_of_row(r, C) || "name") + ": " + r[C.what] + "; A " +
		      (r[C.dtype_a] || "-") + ", B " + (r[C.dtype_b] || "-") + "; " + rp.count(r[C.differ]) + " of " +
		      rp.many(r[C.elements], "element") + " differ, max " + rp.real(r[C.max_abs]) + ", rms " +
		      rp.real(r[C.rms]) + ", relative " + rp.real(r[C.rel_l2]) + "; NaN in A only " +
		      rp.count(r[C.nan_a]) + ", in B only " + rp.count(r[C.nan_b]));
	});
	s.appendChild(detail);
	function filter() {
		const words = field.value.toLowerCase().split(/\s+/).filter(Boolean), out = [];
		text.forEach(function (t, i) {
			if (words.every(function (w) { return t.includes(w); }))
				out.push(i);
		});
		view.set(out);
	}
	field.addEventListener("input", filter);
	filter();
}
