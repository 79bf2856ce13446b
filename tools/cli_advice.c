/* cli_advice.c -- see cli_advice.h. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli_advice.h"
#include "cli_lora.h"
#include "cli_steps.h"

#define BESIDE 256	/* folders that are looked at */

char *advice_parent(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n && path[n - 1] != '/')
		n--;
	while (n > 1 && path[n - 1] == '/')
		n--;
	return n ? cli_format("%.*s", (int)n, path) : cli_strdup(".");
}

char *advice_recover(const struct args *args, const char *path)
{
	struct steps steps = { 0 };
	char *text = NULL;

	if (steps_find(args, path, &steps))
		return NULL;
	for (size_t i = steps.n; i > 0 && !text; i--) {
		struct step *s = &steps.step[i - 1];

		/* further below lie other runs */
		if (!strchr(s->name, '/') && step_is_good(args, s) &&
		    !strcmp(s->format, "deepspeed"))
			text = advice_with(args, s->path);
	}
	steps_free(&steps);
	return text;
}

int advice_ends_save(const char *where)
{
	static const char name[] = "/metadata.json";
	const size_t n = strlen(where), m = sizeof(name) - 1;

	return n > m && !strcmp(where + n - m, name);
}

static int is_part_missing(const char *id)
{
	return !strcmp(id, "RANK_FILE_MISSING") || !strcmp(id, "MODEL_FILE_MISSING") ||
	       !strcmp(id, "STATE_FILE_MISSING");
}

/* Whether the two folders together hold a step without an error. */
static int is_whole(const struct args *args, const char *a, const char *b)
{
	const char *const both[] = { a, b };
	struct ckpt_open_opts opts;
	struct ckpt *ck = NULL;
	int yes;

	cli_open_opts(args, &opts);
	if (ckpt_open(both, 2, &opts, &ck, NULL))
		return 0;
	yes = !out_findings_count(ck, CKPT_ERROR);
	ckpt_close(ck);
	return yes;
}

/* Could it have the rest?  A step of the same name is in it, or it is one beside a step. */
static int is_mate(const char *dir, const char *tag)
{
	return tag ? step_is_folder(cli_format("%s/%s", dir, tag)) : step_is_folder(dir);
}

const char *advice_rest(const struct args *args, const char *path)
{
	char *up = advice_parent(path), *found = NULL;
	char *tag = step_is_folder(path) ? NULL : step_pointer(path, "latest");
	struct dirent **list = NULL;
	const int n = scandir(up, &list, NULL, alphasort);
	struct stat ours, st;

	for (int i = 0; i < n; i++) {
		char *dir = strcmp(up, ".") ? cli_format("%s/%s", up, list[i]->d_name) :
			    cli_strdup(list[i]->d_name);

		if (!found && i < BESIDE && list[i]->d_name[0] != '.' && !stat(path, &ours) &&
		    !stat(dir, &st) && S_ISDIR(st.st_mode) && st.st_ino != ours.st_ino &&
		    is_mate(dir, tag) && is_whole(args, path, dir))
			found = dir;
		else
			cli_free(dir);
		free(list[i]);
	}
	free(list);
	cli_free(tag);
	cli_free(up);
	return found ? found : "OTHER_FOLDER";
}

/* What helps against findings, with %s for the path or the folder of the step. */
static const struct {
	const char *id, *format;
	int of_root;	/* the folder above the step is meant */
} advices[] = {
	{ "LATEST_LIES", "zckpt latest --valid %s", 0 },
	{ "LATEST_BEHIND", "zckpt ls %s", 0 },
	{ "LATEST_ABSENT", "zckpt set-latest %s TAG", 1 },
	{ "STEP_PASSED_OVER", "zckpt ls %s", 0 },
	{ "NO_PERMISSION", "chmod -R u+rX %s", 0 },
	{ "OVERLAY_DIFFERS", "zckpt ls %s", 0 },
	{ "NOT_IN_CHECKPOINT", "zckpt inspect -v %s", 0 },
	{ "PART_OF_STEP", "zckpt inspect %s", 1 },
	{ "PLACEHOLDERS_ONLY", "zckpt convert %s model.safetensors", 1 },
	{ "SUBTREE_CHOICE", "zckpt convert --subtree KEY %s model.safetensors", 0 },
	{ "TENSORS_EMPTY", "zckpt inspect -v %s", 0 },
	{ "CKPT_E_UNSAFE", "zckpt audit %s", 0 },
	{ "NAME_ODD", "zckpt convert --rename 'OLD=NEW' %s model.safetensors", 0 },
	{ "TENSOR_OPAQUE", "zckpt audit %s", 0 },
	{ "FORMAT_NOTE", "zckpt inspect -v %s", 0 },
};

char *advice_about(const char *id, const char *path, const char *step)
{
	char *root = advice_parent(step), *text = NULL;

	if (is_part_missing(id))
		text = cli_format("zckpt convert %s %s model.safetensors", out_word(path),
				  out_word(advice_rest(&cli_args, path)));

	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]) && !text; i++) {
		const char *format = advices[i].format, *at = strstr(format, "%s");

		if (!strcmp(id, advices[i].id))
			text = cli_format("%.*s%s%s", (int)(at - format), format,
					  out_word(advices[i].of_root ? root : path), at + 2);
	}
	if (!text)	/* damage: the last line names another step */
		text = cli_strdup("");
	cli_free(root);
	return text;
}

/* The step may be in a folder that is given, or beside it; of a file it is beside it. */
char *advice_hollow(const struct args *args, const char *path)
{
	struct stat st;
	const int is_folder = !stat(path, &st) && S_ISDIR(st.st_mode);
	char *dir = is_folder ? cli_strdup(path) : advice_parent(path), *text;
	char *command = advice_recover(args, dir);

	if (!command && is_folder) {
		char *up = advice_parent(path);

		command = advice_recover(args, up);
		cli_free(up);
	}
	if (command)
		text = cli_format("the weights are in the shards of a step: %s", command);
	else
		text = cli_format("the weights are in the shards of a step (global_stepN, "
				  "*_optim_states.pt), which is not in %s: find it, then "
				  "zckpt convert STEP model.safetensors", out_word(dir));
	cli_free(command);
	cli_free(dir);
	return text;
}

/* What is left of an archive's name without its ending, as a length; 0 if it has none. */
static size_t archive_stem(const char *path)
{
	static const char *const ends[] = { ".tar.gz", ".tgz", ".tar", ".zip" };
	const size_t n = strlen(path);

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		const size_t m = strlen(ends[i]);

		if (n > m && path[n - m - 1] != '/' && !strcmp(path + n - m, ends[i]))
			return n - m;
	}
	return 0;
}

char *advice_unpack(const struct ckpt_err *err)
{
	const size_t n = archive_stem(err->where);
	struct stat st;
	char *dst;

	if (!n || (!strstr(err->msg, "unpack it first") && !strstr(err->msg, "/data.pkl'")))
		return NULL;
	dst = cli_format("%.*s", (int)n, err->where);
	if (!stat(dst, &st)) {
		cli_free(dst);
		dst = cli_format("%.*s-unpacked", (int)n, err->where);
	}
	return cli_format("zckpt unpack %s %s", out_word(err->where), out_word(dst));
}

/* Errors of a step: another one that is complete, or else where its files may be. */
static char *next_of_errors(const struct args *args, const char *path, const char *step,
			    const struct ckpt_finding *f)
{
	char *complete = advice_complete(args, path, step);

	if (complete)
		return complete;
	if (advice_ends_save(f->where))
		return cli_format("copy it again if the save finished; no other step here is "
				  "complete (zckpt explain %s)", f->id);
	if (!strcmp(f->id, "RANK_FILE_MISSING") || !strcmp(f->id, "MODEL_FILE_MISSING"))
		return cli_format("if the files are on another machine, give its folder too: "
				  "zckpt convert %s %s model.safetensors", out_word(path),
				  out_word(advice_rest(args, path)));
	if (!strcmp(f->id, "NO_PERMISSION"))
		return cli_strdup("ask the owner of the file for read access, or use sudo");
	return cli_strdup("copy the files named above again; no other step here is complete");
}

char *advice_next(const struct args *args, const char *path, struct ckpt *ck)
{
	struct ckpt_finding f;
	struct ckpt_info info;
	enum lora_run run;

	if (args->meant)
		path = args->meant;
	ckpt_info_get(ck, &info);
	if (out_findings_named(ck, "PLACEHOLDERS_ONLY"))
		return advice_hollow(args, path);
	if (cli_lone_shard(path))
		return cli_strdup(cli_lone_shard(path));
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (f.severity == CKPT_ERROR)
			return next_of_errors(args, path, info.path, &f);
	if (!info.ntensors)
		return cli_strdup("it holds no tensor that could be converted");
	if (lora_is_adapter(path))
		return cli_format("PEFT loads it as it is; its names: zckpt inspect --names %s",
				  out_word(path));
	run = lora_run_of(ck);
	if (run != LORA_RUN_NONE)
		return cli_format("the adapter%s: %s",
				  run == LORA_RUN_PEFT ? " for PEFT" : " alone",
				  lora_call(run, path, "adapter"));
	if (!strcmp(info.format, "safetensors"))
		return cli_strdup("");	/* it is what convert would write */
	return cli_format("weights as one file: zckpt convert %s model.safetensors",
			  out_word(path));
}
