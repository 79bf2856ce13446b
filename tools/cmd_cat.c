/* cmd_cat.c -- `zckpt cat`: one tensor, or a slice of it, as .npy, text or raw. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static struct {
	const char *state, *dtype;
	int to;
} want;

static const struct opt own[] = {
	{ "to", 0, OPT_CHOICE, &want.to, "npy|text|raw",
	  "numpy file (default), text, or raw elements", 0 },
	{ "output", 'o', OPT_TEXT, &cli_args.output, "FILE", "write to FILE instead of stdout", 0 },
	{ "state", 0, OPT_TEXT, &want.state, "NAME", "weight (default), master, exp_avg, ...",
	  0 },
	{ "dtype", 0, OPT_TEXT, &want.dtype, "TYPE",
	  "convert to fp32, bf16, fp16 or fp64 (default: as stored)", 0 },
	{ "force", 'f', OPT_FLAG, &cli_args.force, NULL, "replace FILE", 0 },
	{ 0 },
};

/* ---------------------------------------------------------------- output */

static int fail(struct ckpt_err *err, enum ckpt_code code, const char *where, const char *what)
{
	err->code = code;
	err->offset = CKPT_NO_OFFSET;
	snprintf(err->where, sizeof(err->where), "%s", where);
	snprintf(err->msg, sizeof(err->msg), "%s", what);
	return -(int)code;
}

static int write_bytes(void *arg, const void *bytes, size_t n, struct ckpt_err *err)
{
	const char *p = bytes;

	(void)arg;
	while (n) {
		ssize_t k = write(STDOUT_FILENO, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return fail(err, CKPT_E_IO, "stdout", strerror(errno));
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

static int write_out(const struct args *args, struct ckpt *ck, uint64_t tensor,
		     const struct ckpt_cat_opts *opts, struct ckpt_cat_info *info,
		     struct ckpt_err *err)
{
	const unsigned flags = args->force ? CKPT_WRITE_FORCE : 0;
	struct words source = { 0 };
	const char *why;

	if (!args->output || !strcmp(args->output, "-"))
		return ckpt_cat(ck, tensor, opts, write_bytes, NULL, info, err);
	words_add(&source, args->rest.list[0]);
	why = args->force ? cli_precious(args->output, &source, 1) : NULL;
	if (why) {
		fail(err, CKPT_E_EXISTS, args->output, "");
		snprintf(err->msg, sizeof(err->msg), "%s, --force does not replace it", why);
		return -CKPT_E_EXISTS;
	}
	return ckpt_cat_file(ck, tensor, opts, args->output, flags, info, err);
}

/* ---------------------------------------------------------------- the call */

/* "w[0:2, 3]" where no tensor is called so: the name, and the slice. */
static int find(struct ckpt *ck, const char *word, uint64_t *tensor_out, const char **slice_out,
		struct ckpt_err *err)
{
	const char *bracket = strrchr(word, '[');
	size_t n = strlen(word);
	char *name, *slice;

	*slice_out = NULL;
	if (!ckpt_tensor_find(ck, word, tensor_out, err))
		return 0;
	if (!bracket || word[n - 1] != ']')
		return -1;
	memset(err, 0, sizeof(*err));
	name = cli_format("%.*s", (int)(bracket - word), word);
	slice = cli_strdup(bracket + 1);
	slice[strlen(slice) - 1] = 0;
	*slice_out = slice;
	return ckpt_tensor_find(ck, name, tensor_out, err);
}

static int dtype_of(enum ckpt_dtype *out)
{
	*out = 0;
	if (!want.dtype)
		return 0;
	*out = ckpt_dtype_parse(want.dtype);
	if (*out == CKPT_F64 || *out == CKPT_F32 || *out == CKPT_F16 || *out == CKPT_BF16)
		return 0;
	return cli_wrong(&cmd_cat, "--dtype: %s is not one of fp32, bf16, fp16, fp64",
			 out_name(want.dtype));
}

static void tell_bits(const struct ckpt_cat_info *info, const struct ckpt_cat_opts *opts)
{
	if (opts->form == CKPT_CAT_NPY && info->is_bits)
		cli_say("note: numpy has no type for %s, so the file has its bits as %s%s",
			ckpt_dtype_name(info->dtype), info->npy,
			info->dtype == CKPT_BF16 ? "; --dtype fp32 converts" : "");
}

static int cat(const struct args *args, struct ckpt *ck, struct ckpt_cat_opts *opts)
{
	struct ckpt_cat_info info = { 0 };
	struct ckpt_err err = { 0 };
	struct progress progress;
	struct ckpt_run_opts run;
	const char *near;
	uint64_t tensor;
	int rc;

	if (find(ck, args->rest.list[1], &tensor, &opts->slice, &err)) {
		rc = cli_fail(NULL, ck, &err);
		near = cli_nearest_tensor(ck, args->rest.list[1]);
		if (near)
			cli_say("did you mean %s?", out_word(near));
		else
			cli_say("the names: zckpt map --all %s",
				out_word(args->rest.list[0]));
		return rc;
	}
	cli_run_begin(args, &progress, &run);
	opts->run = &run;
	rc = write_out(args, ck, tensor, opts, &info, &err);
	progress_end(&progress);
	if (rc)
		return cli_fail(NULL, ck, &err);
	if (!args->quiet)
		tell_bits(&info, opts);
	return EXIT_DONE;
}

static int run(struct args *args)
{
	struct ckpt_cat_opts opts = { .size = sizeof(opts), .state = want.state };
	struct words source = { 0 };
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	int status;

	if (args->rest.n != 2)
		return cli_wrong(&cmd_cat, "cat needs a checkpoint and the name of a tensor");
	opts.form = (enum ckpt_cat_form)want.to;
	if (!args->output && opts.form != CKPT_CAT_TEXT && isatty(STDOUT_FILENO))
		return cli_wrong(&cmd_cat, "binary output is not for a terminal; use --to "
			"text, "
				 "-o FILE or a pipe");
	args->find_states |= want.state && strcmp(want.state, "weight") != 0;
	status = dtype_of(&opts.dtype);
	words_add(&source, args->rest.list[0]);
	if (!status)
		status = cli_open(args, NULL, &source, &ck, &err);
	if (!status) {
		out_findings_asked(args, ck);
		status = cat(args, ck, &opts);
	}
	ckpt_close(ck);
	return status;
}

static const struct opt talk[] = {
	{ "quiet", 'q', OPT_FLAG, &cli_args.quiet, NULL, "print errors and warnings only", 0 },
	{ "verbose", 'v', OPT_FLAG, &cli_args.verbose, NULL, "print more of everything", 0 },
	{ "help", 'h', OPT_FLAG, &cli_args.help, NULL, "print this text", OPT_LAST },
	{ 0 },
};

const struct command cmd_cat = {
	.name = "cat",
	.run = run,
	.ranks = RANKS_EACH,
	.gist = "print a tensor or a slice of it as .npy, text or raw bytes",
	.synopsis = "SRC TENSOR[SLICE]",
	.about = "Writes the elements of a tensor to stdout, or with -o to a file, complete or "
		 "not at all. A slice is written as in Python, within quotes: 'w[0:2, 3]', "
		 "'w[..., ::-1]'.",
	.examples = "zckpt cat -o embed.npy run model.embed_tokens.weight\n"
		    "zckpt cat --to text run 'model.norm.weight[:4]'\n"
		    "zckpt cat --state exp_avg -o m.npy run model.norm.weight\n",
	.notes = "A tensor whose own name ends in such brackets is found first. BF16 goes into a "
		 ".npy file as uint16, since numpy has no such type; --dtype fp32 converts.",
	.tables = { own, opts_source, opts_run, talk, NULL },
};
