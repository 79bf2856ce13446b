/* Says which calls the library makes to the system, before it makes them. */
#ifndef T_CALLS_H
#define T_CALLS_H

/* In any thread; 'path' is NULL for calls on descriptors, of rename() where it leads. */
typedef void (*t_call_fn)(const char *call, const char *path);

/* From here on, for good: in a process that is of no other use.  No thread of the library runs. */
void t_calls_watch(t_call_fn fn);

#endif
