/* zt_complete.h -- `ztrain __complete`, which the completions of shells call. */
#ifndef ZT_COMPLETE_H
#define ZT_COMPLETE_H

/* What may be the last word of 'argv' (without the program and "__complete"), on stdout. */
int zt_complete(int argc, char **argv);

#endif
