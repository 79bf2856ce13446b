/* zt_generate.h -- ztrain generate: what a model says, token after token, in one process. */
#ifndef ZT_GENERATE_H
#define ZT_GENERATE_H

/* argv[0] is "generate".  The exit status. */
int zt_generate(int argc, char **argv);

#endif
