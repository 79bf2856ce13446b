/* cli_explain.h -- the pages of findings: docs/findings.md, built into the program. */
#ifndef CLI_EXPLAIN_H
#define CLI_EXPLAIN_H

struct finding_page {
	const char *id, *severity;
	const char *when;	/* commands that report it, "" = any */
	const char *gist;	/* its first sentence, without the full stop */
	/* Paragraphs with an empty line between; lines indented by 4 are commands. */
	const char *text;
};

/* Ends with one whose id is NULL.  tools/findings.awk makes it of the document. */
extern const struct finding_page finding_pages[];

/* The page of that finding, in any case, with '-' or '_'; NULL if there is none. */
const struct finding_page *explain_find(const char *id);
void explain_print(const struct finding_page *page);

#endif
