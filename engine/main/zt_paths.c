/* zt_paths.c -- paths of the call, before anything is read: by the options that have them. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/main/zt_program.h"

enum wanted {
	FILE_THERE = 1,		/* a file, not a folder */
	FOLDER_THERE,
	EITHER_THERE,
	FOLDER_OR_NEW,
	FILE_OR_NEW,		/* in a folder that exists */
	NO_FOLDER,		/* a file, there or not */
};

struct path {
	const char *option;	/* "" = the words of the call */
	const char *path;	/* or NULL */
	enum wanted wanted;
	const char *is;		/* what is expected */
};

static int wrong(const struct path *p, enum ckpt_code code, const char *what, struct ckpt_err *err)
{
	err->code = code;
	snprintf(err->where, sizeof(err->where), "%s%s%.280s", p->option, *p->option ? " " : "",
		 *p->path ? p->path : "''");
	snprintf(err->msg, sizeof(err->msg), "%.300s; expected %s", what, p->is);
	return -(int)code;
}

/* "run/global_step9" where run exists: its steps can be listed. */
static int missing(const struct path *p, struct ckpt_err *err)
{
	const char *slash = strrchr(p->path, '/');
	char parent[ZT_PATH], what[ZT_PATH + 64];
	struct stat st;

	if (p->wanted != EITHER_THERE || !slash || slash == p->path || !slash[1])
		return wrong(p, CKPT_E_NOTFOUND, "no such file or folder", err);
	snprintf(parent, sizeof(parent), "%.*s", (int)(slash - p->path), p->path);
	if (stat(parent, &st) || !S_ISDIR(st.st_mode))
		return wrong(p, CKPT_E_NOTFOUND, "no such file or folder", err);
	snprintf(what, sizeof(what), "no such file or folder; zckpt ls %.200s lists the steps in "
		 "it", parent);
	return wrong(p, CKPT_E_NOTFOUND, what, err);
}

/* Whether the folder that the file will be in exists. */
static bool has_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	char parent[ZT_PATH];
	struct stat st;

	if (!slash || slash == path)
		return true;
	snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
	return !stat(parent, &st) && S_ISDIR(st.st_mode);
}

static bool is_empty(const char *dir)
{
	DIR *d = opendir(dir);
	size_t n = 0;

	while (d && n < 3 && readdir(d))	/* "." and ".." */
		n++;
	if (d)
		closedir(d);
	return d && n < 3;
}

/* What is made need not be on the hosts of other ranks: rank 0 makes it. */
static int check(const struct path *p, bool is_first, struct ckpt_err *err)
{
	const bool is_new = p->wanted >= FOLDER_OR_NEW;
	struct stat st;

	if (!*p->path)
		return wrong(p, CKPT_E_USAGE, "an empty text (an unset variable?)", err);
	if (is_new && !is_first)
		return 0;
	if (stat(p->path, &st)) {
		if (errno != ENOENT && errno != ENOTDIR)
			return 0;	/* whoever opens it has the reason */
		if (!is_new)
			return missing(p, err);
		return p->wanted == FILE_OR_NEW && !has_folder(p->path) ?
		       wrong(p, CKPT_E_NOTFOUND, "the folder of this file is missing", err) : 0;
	}
	if (S_ISDIR(st.st_mode) && (p->wanted == FILE_THERE || p->wanted >= FILE_OR_NEW))
		return wrong(p, CKPT_E_USAGE, "this is a folder", err);
	if (!S_ISDIR(st.st_mode) && (p->wanted == FOLDER_THERE || p->wanted == FOLDER_OR_NEW))
		return wrong(p, CKPT_E_USAGE, "this is a file", err);
	if (S_ISDIR(st.st_mode) && p->wanted == EITHER_THERE && is_empty(p->path))
		return wrong(p, CKPT_E_NOTFOUND, "this folder is empty", err);
	return 0;
}

/* Rows in safetensors may be a folder of files. */
static enum wanted rows_of(const struct zt_args *a, const char *path)
{
	const char *dot = path ? strrchr(path, '.') : NULL;

	return a->data_kind || (dot && !strcmp(dot, ".safetensors")) ? EITHER_THERE : FILE_THERE;
}

/* ---- a folder of PEFT's, which is neither a model nor a step ---- */

static bool has(const char *dir, const char *name)
{
	char path[ZT_PATH];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return !access(path, F_OK);
}

static bool is_adapter(const char *dir)
{
	return dir && (has(dir, "adapter_model.safetensors") || has(dir, "adapter_model.bin")) &&
	       !has(dir, "config.json") && !has(dir, "model.safetensors") &&
	       !has(dir, "trainer_state.json") && !has(dir, "optimizer.pt") && !has(dir, "latest");
}

static int refuse_adapter(const struct zt_args *a, struct ckpt_err *err)
{
	const bool is_model = is_adapter(a->model), is_eval = a->call == ZT_EVAL;
	const char *dir = is_model ? a->model : a->resume;

	if (!is_model && !is_adapter(a->resume))
		return 0;
	err->code = CKPT_E_USAGE;
	snprintf(err->where, sizeof(err->where), "%s%.280s", is_model ? "--model " :
		 is_eval ? "" : "--resume ", dir);
	if (is_eval && !is_model)
		snprintf(err->msg, sizeof(err->msg), "an adapter of PEFT; give the model that it "
			 "was trained for: ztrain eval MODEL --lora-from %.200s", dir);
	else
		snprintf(err->msg, sizeof(err->msg), "an adapter of PEFT%s; give the model that "
			 "it was trained for by --model, and --lora-from %.200s", is_model ? "" :
			 ", without moments to resume", dir);
	return -CKPT_E_USAGE;
}

int zt_check_paths(const struct zt_program *p, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	static const char rows[] = "a file of tokens (.bin, .u16, .u32, .jsonl, .safetensors)";
	const bool newest = a->resume && !strcmp(a->resume, "auto");
	const bool is_eval = a->call == ZT_EVAL;
	const struct path paths[] = {
		{ "--model", a->model && !*a->model ? a->model : NULL, EITHER_THERE,
		  "a Hugging Face folder or a config.json" },
		{ "--config", a->config, FILE_THERE, "a DeepSpeed JSON or accelerate's YAML" },
		{ "--data", a->data, rows_of(a, a->data), rows },
		{ "--eval", a->eval, rows_of(a, a->eval), rows },
		{ is_eval ? "" : "--resume", newest ? NULL : a->resume, EITHER_THERE, is_eval ?
		  "a step, a folder of steps or a model" :
		  "auto (with --save), a step, a folder of steps or a file of torch.save" },
		{ "--resume-order", a->resume_order, FILE_THERE, "a list of names, one a line" },
		{ "--lora-from", a->lora_from, FOLDER_THERE,
		  "the folder that PEFT saves an adapter in" },
		{ "--save", a->save, FOLDER_OR_NEW, "a folder, which may be new" },
		{ "--export", a->export, FOLDER_OR_NEW, "a folder, which may be new" },
		/* --save may make the folder that the log is in. */
		{ "--log", a->log, a->save ? NO_FOLDER : FILE_OR_NEW,
		  "a file in an existing folder" },
		{ "--trace", a->trace, FILE_OR_NEW, "a file in an existing folder" },
		{ "--plot", a->plot, FILE_OR_NEW, "a file in an existing folder" },
	};
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(paths) / sizeof(paths[0]); i++)
		rc = paths[i].path ? check(&paths[i], !p->comm->rank, err) : 0;
	return rc ? rc : refuse_adapter(a, err);
}
