/* cli_run.c -- from options to the library's structs; opening and choosing. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli_advice.h"

/* Of a run that Ctrl-C or SIGTERM stops: with less work than this nothing stays. */
#define KEEP_BYTES ((uint64_t)100000000)

static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return cli_strdup(".");
	return cli_format("%.*s", slash == path ? 1 : (int)(slash - path), path);
}

static int ends_with(const char *name, const char *end)
{
	const size_t n = strlen(name), m = strlen(end);

	return n > m && !strcmp(name + n - m, end);
}

/* Of a folder with the index of DCP: its data, and what Megatron-Core puts beside it. */
static int is_beside_index(const char *path, const char *base)
{
	struct stat st;

	if (!ends_with(base, ".distcp") && strcmp(base, ".metadata") &&
	    strcmp(base, "common.pt") && strcmp(base, "metadata.json"))
		return 0;
	return !stat(cli_format("%s/.metadata", folder_of(path)), &st) && S_ISREG(st.st_mode) &&
	       !stat(path, &st) && S_ISREG(st.st_mode);
}

/* Whether it looks like one file of a step, which says little alone. */
static int is_lone_shard(const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	return ends_with(base, "_model_states.pt") || ends_with(base, "_optim_states.pt") ||
	       is_beside_index(path, base);
}

const char *cli_lone_shard(const char *path)
{
	if (!is_lone_shard(path))
		return NULL;
	return cli_format("this is one file of a step; for all of it: %s",
			  advice_whole(&cli_args, folder_of(path)));
}

/*
 * Who answers whether a step is whole answers no to an unfinished save; who uses it is warned only,
 * since its files may be all there is.
 */
static const char *const *as_warning(const struct args *args)
{
	static const char *const answers[] = {
		"verify", "doctor", "inspect", "ls", "latest", "set-latest", NULL,
	};
	const char *const *verb = answers;
	struct words ids = { 0 };

	while (*verb && strcmp(*verb, args->argv[1]))
		verb++;
	if (*verb)
		return args->as_warning.list;
	for (size_t i = 0; i < args->as_warning.n; i++)
		words_add(&ids, args->as_warning.list[i]);
	words_add(&ids, "UNFINISHED");
	return ids.list;
}

int cli_is_beyond_weight(const struct words *states)
{
	for (size_t i = 0; i < states->n; i++)
		if (strcmp(states->list[i], "weight"))
			return 1;
	return 0;
}

void cli_open_opts(const struct args *args, struct ckpt_open_opts *opts_out)
{
	*opts_out = (struct ckpt_open_opts){
		.size = sizeof(*opts_out),
		.tag = args->tag,
		.threads = (uint32_t)args->threads,
		.limits = args->limits.size ? &args->limits : NULL,
		.as_warning = as_warning(args),
		.subtree = args->subtree,
		.keep_values = args->keep_values,
		.find_states = args->find_states,
		.names = args->names,
		.model_config = args->model_config,
		.tp_rules = args->tp_rules,
		.vocab_size = args->vocab,
		.order_path = args->order,
		.frozen = args->frozen.n ? args->frozen.list : NULL,
		.buffers = args->buffer.n ? args->buffer.list : NULL,
	};
}

/* A folder that is no checkpoint itself, with exactly one below it, means that one. */
static int open_below(const struct words *paths, const struct ckpt_open_opts *opts,
		      struct ckpt **ck_out, struct ckpt_err *err)
{
	struct ckpt_err below = { 0 };
	const char *only;

	if (err->code != CKPT_E_FORMAT || paths->n != 1)
		return 0;
	only = advice_only_below(&cli_args, paths->list[0]);
	if (!only || ckpt_open(&only, 1, opts, ck_out, &below))
		return 0;
	*err = below;
	cli_args.meant = only;
	cli_say("using %s, the only checkpoint below %s", out_name(only),
		out_name(paths->list[0]));
	return 1;
}

/* What the library says about --tag, of the option that was typed: "--tag2 3 means ...". */
static char *of_option(const struct args *args, const char *text)
{
	const char *at = args->tag_option ? strstr(text, "--tag ") : NULL;

	return at ? cli_format("%.*s%s%s", (int)(at - text), text, args->tag_option, at + 5) :
	       cli_strdup(text);
}

/* "--tag 3" opened another name: which one. */
static void say_step(const struct args *args, const struct ckpt *ck)
{
	struct ckpt_info info;
	char *why;

	if (!args->tag || !*args->tag || args->tag[strspn(args->tag, "0123456789")])
		return;
	ckpt_info_get(ck, &info);
	if (!strcmp(info.tag, args->tag) || args->quiet || args->json)
		return;
	why = of_option(args, info.why);
	cli_say("step %s: %s", out_name(info.tag), why);
	cli_free(why);
	cli_args.step_said = 1;
}

void cli_say_step(const struct args *args, const struct ckpt *ck)
{
	struct ckpt_info info;
	char *tag, *call;

	ckpt_info_get(ck, &info);
	if (args->quiet || args->json || cli_args.step_said || !info.why[0])
		return;
	cli_args.step_said = 1;
	if (info.tag[0]) {
		cli_say("step %s: %s", out_name(info.tag), info.why);
		return;
	}
	tag = args->sources.n == 1 ? advice_tag_in(args, args->sources.list[0]) : NULL;
	if (!tag)
		return;
	call = advice_call(args, tag, NULL, NULL);
	cli_say("not a step: %s; for the step beside it: %s", info.why, call);
	cli_free(call);
	cli_free(tag);
}

/* --naming of a command that neither writes names nor reads Megatron-Core's would do nothing. */
static int check_naming(const struct args *args, struct ckpt **ck, struct ckpt_err *err)
{
	struct ckpt_info info;

	ckpt_info_get(*ck, &info);
	if (!args->names || args->writes_names || !strcmp(info.format, "megatron"))
		return 0;
	*err = (struct ckpt_err){ .code = CKPT_E_USAGE, .offset = CKPT_NO_OFFSET };
	snprintf(err->where, sizeof(err->where), "%s", info.path);
	snprintf(err->msg, sizeof(err->msg), "--naming is for checkpoints of Megatron-Core here, "
		 "and this is %s; convert and shard take it for other models", info.format);
	ckpt_close(*ck);
	*ck = NULL;
	return -CKPT_E_USAGE;
}

int cli_open_quietly(const struct args *args, const struct words *paths, struct ckpt **ck_out,
		     struct ckpt_err *err)
{
	struct ckpt_open_opts opts;
	int rc;

	cli_open_opts(args, &opts);
	cli_args.sources = *paths;
	cli_args.meant = NULL;
	rc = ckpt_open(paths->list, paths->n, &opts, ck_out, err);
	if (rc && open_below(paths, &opts, ck_out, err))
		rc = 0;
	if (!rc)
		rc = check_naming(args, ck_out, err);
	if (!rc) {
		say_step(args, *ck_out);
	} else if (args->tag_option) {
		char *text = of_option(args, err->msg);

		snprintf(err->msg, sizeof(err->msg), "%s", text);
		cli_free(text);
	}
	return rc;
}

int cli_open(const struct args *args, const char *verb, const struct words *paths,
	     struct ckpt **ck_out, struct ckpt_err *err)
{
	int status;

	if (!cli_open_quietly(args, paths, ck_out, err))
		return 0;
	status = cli_fail(args->json ? verb : NULL, NULL, err);
	/* of one that opens, the findings end with it */
	if (paths->n == 1 && cli_lone_shard(paths->list[0]))
		cli_say("hint: %s", cli_lone_shard(paths->list[0]));
	return status;
}

void cli_run_opts(const struct args *args, struct progress *progress,
		  struct ckpt_run_opts *run_out)
{
	static const enum ckpt_sync syncs[] = { CKPT_SYNC_DATA, CKPT_SYNC_FULL, CKPT_SYNC_NONE };

	memset(run_out, 0, sizeof(*run_out));
	run_out->size = sizeof(*run_out);
	run_out->threads = (uint32_t)args->threads;
	run_out->mem_limit = args->mem_limit;
	run_out->sync = syncs[args->sync];
	run_out->cancel = signals_catch();
	run_out->keep_bytes = KEEP_BYTES;
	run_out->progress = progress_show;
	run_out->progress_arg = progress;
}

void cli_run_begin(const struct args *args, struct progress *progress,
		   struct ckpt_run_opts *run_out)
{
	progress_begin(progress, args);
	cli_run_opts(args, progress, run_out);
}

unsigned cli_write_flags(const struct args *args)
{
	return (args->force ? CKPT_WRITE_FORCE : 0) |
	       (args->restart ? CKPT_WRITE_RESTART : 0) |
	       (args->dry_run ? CKPT_WRITE_DRY_RUN : 0) |
	       (args->strict ? CKPT_WRITE_STRICT : 0);
}

int cli_part(const struct command *cmd, const struct args *args, uint32_t *part_out,
	     uint32_t *nparts_out)
{
	const char *text = args->part;
	unsigned long i, n;
	char *end;

	if (!text)
		return 0;
	i = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '/' || end[1] < '0' || end[1] > '9')
		return cli_wrong(cmd, "--part: %s is not I/N, as in 1/4 to 4/4", out_name(text));
	n = strtoul(end + 1, &end, 10);
	if (*end || !i || i > n || n > 4096)
		return cli_wrong(cmd, "--part: %s is not I/N; parts are 1/N to N/N, N at most 4096",
				 out_name(text));
	*part_out = (uint32_t)i - 1;
	*nparts_out = (uint32_t)n;
	return 0;
}

static unsigned only_bit(const char *word)
{
	if (!strcmp(word, "trainable"))
		return CKPT_ONLY_TRAINABLE;
	if (!strcmp(word, "frozen"))
		return CKPT_ONLY_FROZEN;
	if (!strcmp(word, "buffers") || !strcmp(word, "buffer"))
		return CKPT_ONLY_BUFFERS;
	return 0;
}

int cli_select(const struct command *cmd, const struct args *args,
	       struct ckpt_select *select_out)
{
	memset(select_out, 0, sizeof(*select_out));
	select_out->size = sizeof(*select_out);
	select_out->include = args->include.list;
	select_out->exclude = args->exclude.list;
	for (size_t i = 0; i < args->only.n; i++) {
		unsigned bit = only_bit(args->only.list[i]);

		if (!bit)
			return cli_wrong(cmd, "--only: %s is not one of trainable, frozen, buffers",
					 out_name(args->only.list[i]));
		select_out->only |= bit;
	}
	return 0;
}

static int matches(const struct words *patterns, const char *name)
{
	for (size_t i = 0; i < patterns->n; i++)
		if (!fnmatch(patterns->list[i], name, 0))
			return 1;
	return 0;
}

static unsigned role_bit(enum ckpt_role role)
{
	switch (role) {
	case CKPT_ROLE_FROZEN:
		return CKPT_ONLY_FROZEN;
	case CKPT_ROLE_BUFFER:
		return CKPT_ONLY_BUFFERS;
	default:
		return CKPT_ONLY_TRAINABLE;
	}
}

int cli_is_selected(const struct args *args, unsigned only, const char *name,
		    enum ckpt_role role)
{
	if (only && !(only & role_bit(role)))
		return 0;
	if (args->include.n && !matches(&args->include, name))
		return 0;
	return !matches(&args->exclude, name);
}

int cli_is_state_selected(const struct words *states, const char *state)
{
	for (size_t i = 0; i < states->n; i++)
		if (!strcmp(states->list[i], state) || !strcmp(states->list[i], "all"))
			return 1;
	return !states->n;
}

/* ---------------------------------------------------------------- --force */

/* Whether path 'inner' is 'outer' or lies below it; both as realpath() gives them. */
static int is_within(const char *inner, const char *outer)
{
	size_t n = strlen(outer);

	return !strncmp(inner, outer, n) && (!inner[n] || inner[n] == '/' || n == 1);
}

/* Does a source lie in 'dst', or is it that?  With 'around' the other way: 'dst' in a source. */
static int meets_source(const char *dst, const struct words *sources, int around)
{
	char *ours = realpath(dst, NULL), *src;
	int found = 0;

	for (size_t i = 0; ours && i < sources->n && !found; i++) {
		src = realpath(sources->list[i], NULL);
		found = src && (around ? is_within(ours, src) : is_within(src, ours));
		free(src);
	}
	free(ours);
	return found;
}

int cli_is_in_source(const char *dst, const struct words *sources)
{
	return meets_source(dst, sources, 1);
}

/*
 * 'zckpt convert --force A B' with the destination forgotten must not cost B, which may
 * be the only copy of a training state.
 */
const char *cli_precious(const char *dst, const struct words *sources, int sure)
{
	struct ckpt_open_opts opts = { .size = sizeof(opts) };
	struct ckpt_err err = { 0 };
	struct ckpt_info info;
	struct ckpt *ck = NULL;
	struct stat st;
	int precious;

	if (stat(dst, &st))
		return NULL;
	if (meets_source(dst, sources, 0))
		return "it is or contains a source of this run";
	if (sure || !S_ISDIR(st.st_mode))
		return NULL;
	if (ckpt_open(&dst, 1, &opts, &ck, &err)) {
		precious = err.code == CKPT_E_INCOMPLETE || err.code == CKPT_E_LAYOUT ||
			   err.code == CKPT_E_LIMIT;
	} else {
		ckpt_info_get(ck, &info);
		precious = !strcmp(info.format, "deepspeed");
		ckpt_close(ck);
	}
	return precious ? "it is a DeepSpeed checkpoint; is the destination missing?" : NULL;
}
