/*
 * cli.h -- what the files of zckpt share: commands, options, output, errors.
 *
 * The program sees <ckpt.h> and <ckpt_zero.h> only.  A result goes to stdout,
 * everything else to stderr.
 */
#ifndef CLI_H
#define CLI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ckpt.h>

#include "shared/cli_opt.h"
#include "shared/cli_term.h"
#include "shared/cli_text.h"

/* Exit statuses.  Pinned: scripts see them. */
enum {
	EXIT_DONE = 0,
	EXIT_NO = 1,		/* the answer is no */
	EXIT_CALL = 2,		/* wrong call, destination exists */
	EXIT_TROUBLE = 3,	/* I/O, damage, unsupported */
	EXIT_UNSAFE = 4,	/* refused pickle call */
};

/* ---------------------------------------------------------------- options */

/*
 * What options of several verbs fill.  A verb looks at those that it lists; what it has of its own
 * is a struct 'want' in its file.
 */
struct args {
	int argc;		/* the call as main() got it */
	char **argv;
	struct words rest;	/* what is no option, in order */
	struct words sources;	/* what cli_open() opened last */
	const char *meant;	/* the one checkpoint below sources.list[0], opened instead */
	int step_said;		/* which step a number means has been printed */
	/* where from, and where to */
	const char *tag, *subtree, *output;
	const char *names, *model_config, *tp_rules;	/* struct ckpt_open_opts */
	const char *order;				/* likewise */
	struct words frozen, buffer;
	uint64_t vocab;
	const char *tag_option;	/* the one that 'tag' is of, if it is not --tag */
	struct words as_warning;
	int keep_values;	/* of the verb: it writes a step */
	int writes_names;	/* likewise: --naming is of any model */
	int find_states;	/* asked for, or the verb needs them */
	uint64_t threads;
	struct ckpt_limits limits;
	/* which tensors */
	struct words include, exclude, only;
	/* how it runs */
	uint64_t mem_limit;
	int progress;		/* -1 = only on a terminal */
	/* how it writes */
	const char *part;
	uint64_t timeout;	/* seconds, or OPT_UNSET */
	int dry_run, force, restart, strict, sync;
	/* how it talks */
	int json, quiet, verbose, help, color;
};

/* Those of this call. */
extern struct args cli_args;

/* Tables; opts_write is of every verb that writes: each says itself what its --force replaces. */
extern const struct opt opts_source[], opts_select[], opts_write[], opts_run[], opts_talk[];
/* Of serve and mount: which steps and tensors, and how they are opened. */
extern const struct opt opts_shown[], opts_shown_talk[];
extern const char *cli_aux;	/* --aux of these */
/* A line of a table: of all commands that read checkpoints. */
#define OPT_LIMITS { "limit", 0, OPT_OWN, &cli_limit, "NAME=N", \
		     "change a limit on the sizes that files announce", OPT_RARE }
/* Of those too: how the tensors of parallel checkpoints are named and joined. */
#define OPT_NAMES \
	{ "naming", 0, OPT_TEXT, &cli_args.names, "WHICH", \
	  "names of the tensors (Megatron-Core, vision-language models): hf, native, or a file " \
	  "with a table", OPT_RARE }, \
	{ "names", 0, OPT_TEXT, &cli_args.names, "WHICH", "", OPT_HIDDEN }, \
	{ "model-config", 0, OPT_TEXT, &cli_args.model_config, "FILE", \
	  "config.json of the model (default: found beside it)", OPT_RARE }, \
	{ "vocab", 0, OPT_COUNT, &cli_args.vocab, "N", \
	  "rows of the vocabulary without padding", OPT_RARE }, \
	{ "find-states", 0, OPT_FLAG, &cli_args.find_states, NULL, \
	  "find Megatron-Core's states without names by content; reads all weights", OPT_RARE }, \
	{ "tp-rules", 0, OPT_TEXT, &cli_args.tp_rules, "FILE", \
	  "how tensor-parallel slices are joined, where the files do not say it", OPT_RARE }
extern struct opt_own cli_limit;

/* What the ranks of mpirun or srun do with a command (cli_team.h). */
enum ranks {
	RANKS_ONE = 0,		/* rank 0 runs it */
	RANKS_EACH,		/* each runs it: it only reads */
	RANKS_SHARE,		/* they share the work */
};

struct command {
	const char *name;
	int (*run)(struct args *args);
	enum ranks ranks;
	const char *gist;	/* for the list of commands */
	const char *synopsis;	/* what follows "zckpt NAME [OPTION...] " */
	const char *about;	/* a paragraph */
	const char *examples;	/* lines to copy, each ends with a newline */
	const char *notes;	/* lines below the options, or NULL */
	const struct opt *tables[8];	/* ends with NULL */
};

extern const struct command cmd_audit, cmd_cat, cmd_commit, cmd_convert, cmd_diff,
	cmd_digest, cmd_doctor, cmd_explain, cmd_inspect, cmd_latest, cmd_ls,
	cmd_map, cmd_mount, cmd_pack, cmd_plan, cmd_prune, cmd_report, cmd_reshard,
	cmd_serve, cmd_set_latest, cmd_shard, cmd_slim, cmd_unpack, cmd_verify;

/* 0, or the exit status of a wrong call, which has been told on stderr. */
int cli_parse(const struct command *cmd, int argc, char **argv);
/* cli_meant.c: a wrong call, with the one that was probably meant (opt_call.unknown). */
int cli_unknown_option(const struct opt_call *call, const char *word, const char *near);
/* Whether 'name' is an option of another program (opt_call.is_meant). */
int cli_is_meant(const struct opt_call *call, const char *name);
/* 'all': with its rare options. */
void cli_help(const struct command *cmd, int all, FILE *out);

/* ---------------------------------------------------------------- errors */

/* "zckpt: " and a line on stderr. */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same of what ends the program. */
void cli_say_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The last line of cli_say_error(), or "". */
const char *cli_said_last(void);
/* From now on each line goes to 'keeps' first; it is not printed where that returns true. */
void cli_say_through(int (*keeps)(const char *line));
/* From now on a wrong call is also one object of that verb on stdout. */
void cli_promise_json(const char *verb);
/* A wrong call: the line, and where help is.  Returns EXIT_CALL. */
int cli_wrong(const struct command *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same with a command line that was probably meant (NULL: where help is). */
int cli_try(const struct command *cmd, const char *command, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * Tells an error of the library and what may help; returns the exit status.  If it is
 * one of the findings of 'ck' (may be NULL), which have been told, it is not told
 * again.  With 'verb' it is also the JSON result of that verb.
 */
int cli_fail(const char *verb, const struct ckpt *ck, const struct ckpt_err *err);
/* The same for a command that writes: EXIT_NO where --strict made a warning stop it. */
int cli_fail_writing(const struct args *args, const struct ckpt *ck, const struct ckpt_err *err);
int cli_exit_status(enum ckpt_code code);
/* Closes stdout: 'status', or EXIT_TROUBLE if it could not be written. */
int cli_close_stdout(int status);

/* ---------------------------------------------------------------- output */

const char *out_size(uint64_t bytes);	/* "75.7 kB" */
const char *out_plural(uint64_t n);	/* "" of 1, else "s" */
const char *out_count(uint64_t n);	/* "1,234,567" */
const char *out_shape(const struct ckpt_tensor_info *tensor);	/* "[3, 4]" */
const char *out_role(enum ckpt_role role);
const char *out_severity(enum ckpt_severity severity);

/*
 * A table (cli_table.c): columns as wide as they must be, or as a terminal allows.  'align': one of
 * l, r per column.  A first row in capitals, or with 'heading', is one.
 */
struct table {
	const char *align;
	int heading;
	size_t columns, cells;
	char **cell;
};
void table_add(struct table *table, const char *const *cells);
void table_print(struct table *table, FILE *out, const char *indent);

/* "ID: " of a finding; "" if it is the name of a code, which people do not see. */
const char *out_id(const char *id);
/* Findings to stderr, a line for each cause; each alone with --verbose, notes too. */
void out_findings_asked(const struct args *args, const struct ckpt *ck);
/* Whether it said an error whose name is the first 'n' letters of 'id'. */
int out_finding_is_said(const char *id, size_t n);
uint64_t out_findings_count(const struct ckpt *ck, enum ckpt_severity severity);
uint64_t out_findings_named(const struct ckpt *ck, const char *id);

/* ---------------------------------------------------------------- JSON */

/*
 * Writes one JSON value, piece by piece, so that a map of any size needs no memory.
 * Integers are written as they are; bytes that are no UTF-8 become U+FFFD.
 */
struct json {
	FILE *out;
	unsigned depth;
	unsigned char filled[32];	/* something stands at this depth already */
	int is_result;			/* on stdout: json_finish() writes its end */
};
void json_open(struct json *json, const char *key, char bracket);	/* '{' or '[' */
void json_close(struct json *json, char bracket);
void json_text(struct json *json, const char *key, const char *text);
void json_uint(struct json *json, const char *key, uint64_t n);
void json_int(struct json *json, const char *key, int64_t n);
void json_bool(struct json *json, const char *key, int yes);
/* A negative number is an unknown one: null. */
void json_known(struct json *json, const char *key, int64_t n);
/* As many digits as read back; "inf" and "nan" are strings. */
void json_real(struct json *json, const char *key, double n);
void json_seconds(struct json *json, const char *key, double seconds);
void json_shape(struct json *json, const struct ckpt_tensor_info *tensor);
void json_finding(struct json *json, const struct ckpt_finding *finding);
void json_findings(struct json *json, const struct ckpt *ck);
void json_error(struct json *json, const struct ckpt_err *err);
/* The opening of every result: '{', "schema": "zckpt.VERB/1", "zckpt": version. */
void json_begin(struct json *json, FILE *out, const char *verb);
/*
 * The end of the program: what the result on stdout lacks of "ok" and "exit".  Where nothing began
 * and 'verb' is not NULL, an object of that verb with the last line of stderr.
 */
void json_finish(int status, const char *verb);

/* ---------------------------------------------------------------- running */

struct progress {
	int shown;		/* whether to print at all */
	int terminal;
	int printed;
	double began, last;
	uint64_t done;			/* bytes, as last reported */
};
void progress_begin(struct progress *progress, const struct args *args);
void progress_show(void *progress, const struct ckpt_progress *now);
void progress_end(struct progress *progress);
double progress_clock(void);

/* From here on SIGINT, SIGTERM and SIGHUP set the flag that is returned. */
const volatile int *signals_catch(void);
/* If one of them came, dies of it. */
void signals_die(void);

/* Do words of --state name another state than the weight? */
int cli_is_beyond_weight(const struct words *states);
/* What the options say about opening. */
void cli_open_opts(const struct args *args, struct ckpt_open_opts *opts_out);
/* Opens the sources; 0, or the exit status after cli_fail(), with --json for 'verb'. */
int cli_open(const struct args *args, const char *verb, const struct words *paths,
	     struct ckpt **ck_out, struct ckpt_err *err);
/* The same without a word about a failure: what ckpt_open() returned. */
int cli_open_quietly(const struct args *args, const struct words *paths, struct ckpt **ck_out,
		     struct ckpt_err *err);
/* Which step was taken, and why: a line, once. */
void cli_say_step(const struct args *args, const struct ckpt *ck);
/* What to look at instead, if 'path' looks like one file of a ZeRO step; else NULL. */
const char *cli_lone_shard(const char *path);
void cli_run_opts(const struct args *args, struct progress *progress,
		  struct ckpt_run_opts *run_out);
/* The same with progress from now on, until progress_end(). */
void cli_run_begin(const struct args *args, struct progress *progress,
		   struct ckpt_run_opts *run_out);
/* CKPT_WRITE_* of what opts_write and --force say. */
unsigned cli_write_flags(const struct args *args);
/* --part "2/4": share 1 of 4, counted from 0.  0, or EXIT_CALL. */
int cli_part(const struct command *cmd, const struct args *args, uint32_t *part_out,
	     uint32_t *nparts_out);
/* The options that choose tensors; 0, or EXIT_CALL. */
int cli_select(const struct command *cmd, const struct args *args,
	       struct ckpt_select *select_out);
/* The same choice for verbs that only list. */
int cli_is_selected(const struct args *args, unsigned only, const char *name,
		    enum ckpt_role role);
int cli_is_state_selected(const struct words *states, const char *state);
/* The tensor whose name is nearest to 'word', NULL if none is near.  Lent by 'ck'. */
const char *cli_nearest_tensor(const struct ckpt *ck, const char *word);
/* Names of --include, without wildcards, that no tensor of any of 'ck' has: a line each. */
void cli_say_nearest(const struct args *args, const struct ckpt *const *ck, size_t n);

/* ---------------------------------------------------------------- convert */

/* 0, or EXIT_CALL: a source or destination is the address of an object store. */
int cli_no_address(const struct command *cmd, const struct args *args);
/* Why the file or folder 'dst' is not replaced even with --force; NULL if it may be.  'sure': it
 * was named as the destination (-o), so a step there is meant. */
const char *cli_precious(const char *dst, const struct words *sources, int sure);
/* Does 'dst' lie in a source, or is it one? */
int cli_is_in_source(const char *dst, const struct words *sources);

/* How a conversion went, for people and for scripts. */
struct outcome {
	const struct args *args;
	const char *dst;
	enum ckpt_dst_kind kind;
	const char *record;		/* of report_save(): where to */
	enum ckpt_tied tied;
	int no_sums, of_states;		/* of_states: with --state, not the model's weights */
	int of_adapter;			/* with --to peft or --merge-lora */
	struct ckpt *ck;		/* NULL if it could not be opened */
	const struct ckpt_report *report;	/* NULL if it failed */
	const struct ckpt_err *err;
	int status;
	double began;			/* seconds since 1970 */
	double seconds;
};
void report_print(const struct outcome *outcome);
void report_json(const struct outcome *outcome, FILE *out, int whole);
/* Of a dry run: "would write MOST 1.2 GB and read 3.4 GB; 5.6 GB are free there". */
void report_dry(const char *most, uint64_t written, uint64_t read, uint64_t free_bytes);
void report_json_dry(struct json *json, uint64_t read, uint64_t free_bytes);
/* A step that was written: what it took, and what is left to do when it was a part. */
void report_step_work(const struct args *args, const struct ckpt_report *report);
void report_step_part(const struct args *args, uint32_t nparts, const char *dst);
/* The same for scripts: the opening with 'err' if it failed, and then what it took. */
void report_step_begin(struct json *json, const char *verb, int status, const char *dst,
		       uint32_t world, const struct ckpt_err *err);
void report_step_json(struct json *json, const struct ckpt_report *report);
/* Writes the record: 0, or EXIT_TROUBLE after telling why not. */
int report_save(const struct outcome *outcome);

#endif
