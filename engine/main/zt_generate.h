/* zt_generate.h -- ztrain generate: generates token after token, in one process. */
#ifndef ZT_GENERATE_H
#define ZT_GENERATE_H

#include "tools/shared/cli_opt.h"

/* argv[0] is "generate".  The exit status. */
int zt_generate(int argc, char **argv);
/* Its options, for opt_parse() and its like. */
const struct opt *const *zt_generate_tables(void);

#endif
