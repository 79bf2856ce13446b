/* cli_findings.h -- findings for people: those of one cause are one line. */
#ifndef CLI_FINDINGS_H
#define CLI_FINDINGS_H

#include "cli.h"

/* A line: 'f' has the texts to print; it is about 'n' findings, of which 'first' is the first. */
struct folded {
	struct ckpt_finding f;
	size_t first, n;
};

/*
 * Folds findings of one cause: the missing files of several ranks, one text about several files.
 * 'world' is the number of ranks, 0 = unknown.  Returns the number of lines; never fails.
 */
size_t findings_fold(const struct ckpt_finding *in, size_t n, uint32_t world,
		     struct folded **out);
/* The findings of 'ck' of at least that severity. */
size_t findings_list(const struct ckpt *ck, enum ckpt_severity least, struct ckpt_finding **out);
/* The same as lines: folded, or with 'all' one for each. */
size_t findings_lines(const struct ckpt *ck, enum ckpt_severity least, int all,
		      struct folded **out);
/* Lines shown without -v: those beyond are counted only. */
#define FINDINGS_SHOWN 12

#endif
