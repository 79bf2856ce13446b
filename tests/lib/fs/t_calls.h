/* Wraps the library's calls on files: reports them, or lets them in one by one. */
#ifndef T_CALLS_H
#define T_CALLS_H

#include <stdbool.h>

/* In any thread, before the call; 'path' is NULL for descriptors, of rename() where it leads. */
typedef void (*t_call_fn)(const char *call, const char *path);

/* From here on, for good: in a process that is of no other use.  No thread of the library runs. */
void t_calls_watch(t_call_fn fn);
/* For a table of calls that supports one thread only (t_disk.h). */
void t_calls_in_turn(bool on);

#endif
