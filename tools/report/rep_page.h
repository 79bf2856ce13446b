/* rep_page.h -- the style and the scripts of tools/report/page, as strings; see embed.awk. */
#ifndef REP_PAGE_H
#define REP_PAGE_H

extern const char page_report_css[], page_report_js[], page_lanes_js[], page_tree_js[],
	page_list_js[], page_diff_js[];

#endif
