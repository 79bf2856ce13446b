"use strict";
/* tree.js -- a treemap of bytes by the path of modules; Enter or a click descends. */

function tree_of(d, view) {
	const T = d.tensors, MOST = 120, s = rp.section("tree", "Sizes by module");
	const bytes = tensor_bytes(d);
	const crumbs = rp.el("div", s, "crumbs"), box = rp.el("div", s, "tree");
	let path = [];

	/* Children of a module: those whose names begin alike, up to the next dot. */
	function children(list, skip) {
		const by = new Map();
		list.forEach(function (i) {
			const rest = T.name[i].slice(skip), dot = rest.indexOf(".");
			const key = dot < 0 ? rest : rest.slice(0, dot + 1);
			let c = by.get(key);
			if (!c)
				by.set(key, c = { key: key, list: [], bytes: 0, leaf: dot < 0 });
			c.list.push(i);
			c.bytes += bytes[i];
		});
		return Array.from(by.values()).sort(function (a, b) { return b.bytes - a.bytes; });
	}
	/* "model." with one child "layers." is one step, "model.layers.". */
	function descend(c, skip) {
		let key = c.key, list = c.list;
		for (;;) {
			const next = children(list, skip + key.length);
			if (c.leaf || next.length !== 1 || next[0].leaf)
				return { key: key, skip: skip + key.length, list: list };
			key += next[0].key;
		}
	}
	/* Squarified: rows along the shorter side while their shapes get better. */
	function layout(items, x, y, w, h, place) {
		let i = 0, left = items.reduce(function (n, c) { return n + c.bytes; }, 0);
		while (i < items.length && left > 0 && w > 0 && h > 0) {
			const side = Math.min(w, h), unit = w * h / left;
			let sum = 0, worst = Infinity, j = i;
			for (; j < items.length; j++) {
				const more = sum + items[j].bytes * unit, long = more / side;
				let bad = 0;
				for (let k = i; k <= j; k++) {
					const other = items[k].bytes * unit / long;
					bad = Math.max(bad, long / other, other / long);
				}
				if (bad > worst)
					break;
				worst = bad;
				sum = more;
			}
			const long = sum / side;
			let at = 0;
			for (; i < j; i++) {
				const part = items[i].bytes * unit / long;
				if (w >= h)
					place(items[i], x, y + at, long, part);
				else
					place(items[i], x + at, y, part, long);
				at += part;
				left -= items[i].bytes;
			}
			if (w >= h) {
				x += long;
				w -= long;
			} else {
				y += long;
				h -= long;
			}
		}
	}
	function go(p, focus) {
		path = p;
		const here = path[path.length - 1];
		crumbs.textContent = "";
		path.forEach(function (n, i) {
			const b = rp.button(crumbs, i ? rp.show(n.key) : "all", "", function () {
				go(path.slice(0, i + 1), true);
			});
			b.disabled = i === path.length - 1;
		});
		let items = children(here.list, here.skip).filter(function (c) { return c.bytes; });
		const all = items.reduce(function (n, c) { return n + c.bytes; }, 0);
		rp.el("span", crumbs, "muted", rp.size(all) + " in " + rp.many(here.list.length, "tensor"));
		if (items.length > MOST) {
			const rest = items.slice(MOST);
			items = items.slice(0, MOST);
			items.push({ key: "", more: rest.length, list: [],
				bytes: rest.reduce(function (n, c) { return n + c.bytes; }, 0) });
		}
		box.textContent = "";
		items.forEach(function (c, i) { c.color = i % 9; });
		layout(items, 0, 0, 100, 38, function (c, x, y, w, h) {
			const text = c.more ? rp.count(c.more) + " more" : rp.show(c.key);
			const b = rp.button(box, "", text + ", " + rp.size(c.bytes) + ", " +
				(100 * c.bytes / all).toFixed(1) + "%" + (c.leaf || c.more ? "" : ", " +
				rp.many(c.list.length, "tensor")), function () {
					if (c.leaf)
						view.open(c.list[0]);
					else if (!c.more)
						go(path.concat([descend(c, here.skip)]), true);
				});
			b.title = b.getAttribute("aria-label");
			b.className = "s" + c.color;
			b.style.left = x + "%";
			b.style.top = y / 0.38 + "%";
			b.style.width = w + "%";
			b.style.height = h / 0.38 + "%";
			if (w > 4 && h > 2.2) {
				rp.el("b", b, "nm", text);
				if (h > 4)
					rp.el("span", b, "", rp.size(c.bytes));
			}
		});
		if (!items.length)
			rp.el("p", box, "muted", "No tensor has bytes in the files.");
		if (focus && box.firstChild && box.firstChild.focus)
			box.firstChild.focus();
	}
	box.addEventListener("keydown", function (ev) {
		if ((ev.key === "Backspace" || ev.key === "Escape") && path.length > 1) {
			ev.preventDefault();
			go(path.slice(0, -1), true);
		}
		const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[ev.key];
		const list = Array.from(box.children), i = list.indexOf(document.activeElement);
		if (way && i >= 0 && list[i + way]) {
			ev.preventDefault();
			list[i + way].focus();
		}
	});
	const top = [];
	for (let i = 0; i < T.name.length; i++)
		top.push(i);
	/* a module that has everything is no choice */
	const start = [{ key: "", skip: 0, list: top }];
	for (let only = children(top, 0); only.length === 1 && !only[0].leaf; only = [])
		start.push(descend(only[0], 0));
	go(start);
	rp.el("p", s, "muted noprint", "A click or Enter opens a module or a tensor; Escape goes back up.");
}

/* Bytes of each tensor's states in the files, without padding and copies. */
function tensor_bytes(d) {
	if (d.tensor_bytes)
		return d.tensor_bytes;
	const T = d.tensors;
	const per = T.state_sets.map(function (set) {
		return set.reduce(function (n, x) { return n + (x[2] ? 0 : x[3] / 8); }, 0);
	});
	d.numel = T.shape.map(function (sh) {
		let n = 1;
		for (const k of sh)
			n *= k;
		return n;
	});
	d.tensor_bytes = d.numel.map(function (n, i) { return n * per[T.states[i]]; });
	return d.tensor_bytes;
}
