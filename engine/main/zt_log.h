/* zt_log.h -- ztrain log: logs of runs in other formats. */
#ifndef ZT_LOG_H
#define ZT_LOG_H

#include "tools/shared/cli_opt.h"

/* argv[0] is "log".  The exit status. */
int zt_log(int argc, char **argv);
const struct opt *const *zt_log_tables(void);

#endif
