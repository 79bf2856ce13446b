"use strict";
/* training.js -- the charts of a report of runs; see zt_report_page.c. */
(function () {
	const data = zdata("charts"), places = {};

	for (const c of data.charts) {
		const id = c.other ? "other" : "main";
		if (!places[id]) {
			places[id] = document.getElementById(id);
			places[id].closest("section").hidden = false;
		}
		zchart(places[id], c);
	}
})();
