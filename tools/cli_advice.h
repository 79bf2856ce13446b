/* cli_advice.h -- the command that makes sense next. */
#ifndef CLI_ADVICE_H
#define CLI_ADVICE_H

#include "cli.h"

/* About a finding (or the name of a code) of what was opened at 'path': a command, or "". */
char *advice_about(const char *id, const char *path, const char *step);
/* What to do about the findings of 'ck', else what can be done with it. */
/* metadata.json, which ends a save of Megatron-Core: no other folder has its own. */
int advice_ends_save(const char *where);
char *advice_next(const struct args *args, const char *path, struct ckpt *ck);
/* The command that makes weights from the newest good step in 'path'; NULL if there is none. */
char *advice_recover(const struct args *args, const char *path);
/*
 * The call as it was typed, but with that tag, with 'to' in place of the source, and with
 * 'more' after the sources; each may be NULL.
 */
char *advice_call(const struct args *args, const char *tag, const char *to, const char *more);
/* The call as it was typed, with these two of its words exchanged. */
char *advice_swapped(const struct args *args, const char *a, const char *b);
/* The same with that source alone; and with 'to' in place of the destination (a word of argv). */
char *advice_alone(const struct args *args, const char *source);
char *advice_dst(const struct args *args, const char *dst, const char *to);
/* For a step, by 'tag' of the source or by 'path': the verb typed, 'convert' if that only looks. */
char *advice_step(const struct args *args, const char *src, const char *tag, const char *path);
/* Whether the verb takes several folders as one checkpoint. */
int advice_takes_folders(const struct args *args);
/*
 * The newest complete step beside the one at 'bad' (NULL: none could be opened) of the source
 * 'src', as "NAME is complete: COMMAND"; NULL if there is none.  The command is the call that was
 * typed, or 'convert' of a verb that only looks.
 */
char *advice_complete(const struct args *args, const char *src, const char *bad);
/* The call that was typed with that path; 'convert' of a verb that only looks. */
char *advice_with(const struct args *args, const char *path);
/* The same of the step that a file given is one of; 'inspect' of a verb that only looks. */
char *advice_whole(const struct args *args, const char *step);
/* The tag of the newest step in that folder, whatever else is in it; NULL if there is none. */
char *advice_tag_in(const struct args *args, const char *dir);
/* Below a folder that is no checkpoint: the one root or step that is there; NULL if not one. */
const char *advice_only_below(const struct args *args, const char *path);
/* The checkpoint that a folder that is none is around or inside of, as "TEXT: COMMAND", or NULL. */
char *advice_place(const struct args *args, const char *path);
/* Of a path that is missing: a list of the steps beside it, or "" if there are none. */
char *advice_nearby(const struct args *args, const char *path);
/* The folder beside 'path' that has the rest of its step; OTHER_FOLDER if none is found. */
const char *advice_rest(const struct args *args, const char *path);
/* Of a model file of placeholders: where the weights are. */
char *advice_hollow(const struct args *args, const char *path);
/* Where the command of another tool begins in a message, or its length. */
size_t advice_try_at(const char *msg);
/* That command, with the path in it; NULL if the message has none. */
char *advice_try(const struct ckpt_err *err);
/* Of a path that is an archive of a run: the command that unpacks it; NULL if it is none. */
char *advice_unpack(const struct ckpt_err *err);
/* After a failure: what helps, a line each, to stderr. */
void advice_say(const struct args *args, const struct ckpt *ck, const struct ckpt_err *err);
/* There is no step in that folder: says so, and what is there if it is of another framework. */
void advice_no_step(const struct args *args, const char *path);
/* The nearest folder above that holds a step's files or is one's root, or NULL. */
char *advice_above(const char *path);
/* "a/b" -> "a", "b" -> "."; trailing slashes do not count. */
char *advice_parent(const char *path);

#endif
