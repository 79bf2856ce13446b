/* Where a test program saves: a scratch folder, and the one below it that ranks save into. */
#ifndef T_SAVE_ROOT_H
#define T_SAVE_ROOT_H

extern char *t_scratch, *t_root;

/* For cmocka: makes the first and names the second; removes both. */
int t_root_setup(void **state);
int t_root_teardown(void **state);
/* Ends the test where the root holds another name ("" = it is empty or missing). */
void t_root_holds_only(const char *name);

#endif
