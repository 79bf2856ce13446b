/* zt_page.h -- scripts of ztrain's pages, of the folder page. */
#ifndef ZT_PAGE_H
#define ZT_PAGE_H

extern const char page_training_js[];

#endif
