"use strict";
/* list.js -- the search of tensors, and what is known of the one that is chosen. */
function list_of(d, view) {
	const T = d.tensors, S = d.stats, s = rp.section("tensors", "Tensors");
	const bytes = tensor_bytes(d), tied = new Map(), alias = new Map();
	const C = {};
	S.columns.forEach(function (c, i) { C[c] = i; });
	T.alias.forEach(function (a) {
		alias.set(a[0], a[1]);
		tied.set(a[1], (tied.get(a[1]) || []).concat(a[0]));
	});
	const states = T.state_sets.map(function (set) {
		return set.map(function (x) { return x[0] + " " + x[1]; }).join(", ");
	});

	/* What the words of a search are looked for in, made once. */
	let text = null;
	function texts() {
		return text || (text = T.name.map(function (n, i) {
			const also = (tied.get(i) || []).map(function (a) { return T.name[a]; }).join(" ");
			return (n + " [" + T.shape[i].join(", ") + "] " + states[T.states[i]] + " " +
				T.roles[T.role[i]] + " " + also).toLowerCase();
		}));
	}
	function search(words) {
		const list = words.toLowerCase().split(/\s+/).filter(Boolean), hay = texts(), out = [];
		for (let i = 0; i < hay.length; i++) {
			let all = true;
			for (let k = 0; all && k < list.length; k++)
				all = hay[i].includes(list[k]);
			if (all)
				out.push(i);
		}
		return out;
	}

	const tools = rp.el("div", s, "tools"), field = rp.el("input", tools);
	field.type = "search";
	field.placeholder = "name, shape, type, state or role; words are joined by and";
	field.setAttribute("aria-label", "search of tensors");
	let order = 0;
	rp.select(tools, "order", ["as in the files", "largest first", "by name"], function (i) {
		order = i;
		filter();
	});
	const found = rp.el("span", tools, "muted");
	found.setAttribute("aria-live", "polite");
	const heads = rp.el("div", s, "heads");
	["tensor", "shape", "states", "bytes", "ranks"].forEach(function (h, i) {
		rp.el("span", heads, i === 3 ? "num" : "", h);
	});
	const list = rp.rows(s, "tensors", "tensor", function (e, i) {
		rp.name(e, T.name[i]).title = rp.show(T.name[i]);
		rp.el("span", e, "", "[" + T.shape[i].join(", ") + "]");
		rp.el("span", e, "muted", alias.has(i) ? "= " + T.name[alias.get(i)] : states[T.states[i]]);
		rp.el("span", e, "num", alias.has(i) ? "-" : rp.size(bytes[i]));
		rp.el("span", e, "muted", T.rank_sets[T.ranks[i]]);
	}, show_tensor);
	const detail = rp.el("div", s, "detail");
	detail.id = "tensor";
	rp.el("p", detail, "muted", "Choose a tensor: its states, pieces, statistics and histogram are shown here.");

	function filter() {
		const t0 = performance.now(), out = search(field.value);
		if (order === 1)
			out.sort(function (a, b) { return bytes[b] - bytes[a]; });
		if (order === 2)
			out.sort(function (a, b) { return T.name[a] < T.name[b] ? -1 : 1; });
		list.set(out);
		list.items = out;
		found.textContent = rp.count(out.length) + " of " + rp.many(T.name.length, "tensor");
		field.dataset.ms = (performance.now() - t0).toFixed(1);
	}
	field.addEventListener("input", filter);
	field.addEventListener("keydown", function (ev) {
		if (ev.key === "ArrowDown" || ev.key === "Enter") {
			ev.preventDefault();
			list.box.focus();
			list.go(0);
		}
	});

	/* ---- statistics ---- */

	let by = null;
	function rows_of(t) {
		if (!by) {
			by = new Map();
			S.rows.forEach(function (r) {
				if (!by.has(r[C.tensor]))
					by.set(r[C.tensor], []);
				by.get(r[C.tensor]).push(r);
			});
		}
		return by.get(t) || [];
	}
	function of_what(r) {
		return r[C.seen] === r[C.elements] ? "all " + rp.many(r[C.elements], "element") :
			rp.count(r[C.seen]) + " of " + rp.count(r[C.elements]) + " elements, seed " + S.seed;
	}
	function part(n, r) {
		return rp.count(n) + (n ? " (" + (100 * n / r[C.seen]).toPrecision(3) + "%)" : "");
	}
	function histogram(parent, r) {
		const h = r[C.histogram], lo = r[C.min], hi = r[C.max], w = (hi - lo) / h.length;
		if (!h.length)
			return;
		rp.bars(parent, { title: r[C.state], values: h,
			note: rp.real(lo) + " to " + rp.real(hi) + ", " + rp.many(h.length, "bin"),
			label: function (i) {
				return rp.real(lo + i * w) + " to " + rp.real(lo + (i + 1) * w) + ": " +
				       rp.many(h[i], "element");
			} });
	}

	/* ---- the chosen one ---- */

	function show_states(t) {
		const set = T.state_sets[T.states[t]];
		rp.table(detail, ["state", "type", "#bytes"], set.map(function (x) {
			return [x[0], x[1], x[2] ? "not stored: rounded from the master" :
				rp.size(d.numel[t] * x[3] / 8)];
		}));
	}
	function show_stats(t) {
		const list = rows_of(t);
		if (!list.length) {
			rp.el("p", detail, "muted", S.mode === "none" ?
			      "No statistics: the page was made with --stats none." :
			      "No statistics: its elements are not numbers, could not be read, or the time " +
			      "limit came first (--stats all has none).");
			return;
		}
		rp.table(detail, ["state", "#min", "#max", "#mean", "#std", "#zeros", "#NaN", "#inf", "of"],
			 list.map(function (r) {
				return [r[C.state], rp.real(r[C.min]), rp.real(r[C.max]), rp.real(r[C.mean]),
					rp.real(r[C.std]), part(r[C.zeros], r), part(r[C.nan], r),
					part(r[C.inf], r), of_what(r)];
			 }));
		const grid = rp.el("div", detail, "hists");
		list.forEach(function (r) { histogram(grid, r); });
	}
	function show_pieces(t) {
		const p = view.pieces ? view.pieces(t, 100) : { n: 0, rows: [] };
		if (p.n) {
			const more = rp.el("details", detail);
			rp.el("summary", more, "", rp.many(p.n, "piece") + " in the files");
			rp.table(more, ["state", "rank", "elements", "file", "#at byte"], p.rows);
			if (p.n > p.rows.length)
				rp.el("p", more, "muted", (p.n - p.rows.length) + " more: zckpt map lists all.");
		}
		if (p.merged)
			rp.el("p", detail, "muted", "Small pieces are drawn together; zckpt map SRC NAME lists " +
			      "every piece of a tensor.");
	}
	function show_tensor(t) {
		detail.textContent = "";
		const h = rp.name(detail, T.name[t], "h3"), kept = alias.get(t);
		h.id = "tensor-name";
		rp.el("p", detail, "", "[" + T.shape[t].join(", ") + "], " + rp.many(d.numel[t], "element") + ", " +
		      T.roles[T.role[t]] + (T.group[t] >= 0 ? ", group " + T.group[t] : "") +
		      (T.rank_sets[T.ranks[t]] ? ", on ranks " + T.rank_sets[T.ranks[t]] : ""));
		if (kept !== undefined) {
			rp.el("p", detail, "nm", "A second name of " + T.name[kept] + ", which has the bytes.");
			rp.button(detail, "show it", "", function () { view.open(kept); });
			return;
		}
		if (tied.has(t))
			rp.el("p", detail, "nm", "Tied; also called " + tied.get(t).map(function (a) {
				return T.name[a];
			}).join(", ") + ".");
		show_states(t);
		show_stats(t);
		show_pieces(t);
	}
	view.open = function (t) {
		const items = list.items || [];
		let i = items.indexOf(t);
		if (i < 0) {
			field.value = "";
			filter();
			i = list.items.indexOf(t);
		}
		list.go(i);
		detail.scrollIntoView({ block: "nearest" });
	};
	view.open_name = function (name) {
		const t = T.name.indexOf(name);
		if (t >= 0)
			view.open(t);
		else {
			field.value = name;
			filter();
			s.scrollIntoView();
		}
	};
	rp.el("p", s, "muted", S.mode === "none" ? "Statistics were not collected (--stats none)." :
	      "Statistics of " + rp.count(S.done) + " of " + rp.many(S.states, "state") + ", " +
	      (S.mode === "all" ? "of all elements." : "of at most " + rp.count(S.per_state) +
	       " elements each, chosen by seed " + S.seed + ".") +
	      (S.late ? " The time limit left out the others; --stats all has none." : "") +
	      (S.failed ? " " + rp.many(S.failed, "state") + " could not be read, the first: " + S.failed_why + "." : ""));
	filter();
}
