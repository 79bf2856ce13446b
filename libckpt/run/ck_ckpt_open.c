/* ck_ckpt_open.c -- opening and closing a checkpoint. */
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/run/ck_overlay.h"

static int copy_list(struct ck_arena *arena, const char *const *list, const char *const **out,
		     struct ckpt_err *err)
{
	const char **copy;
	size_t n = 0;

	if (!list)
		return 0;
	while (list[n])
		n++;
	copy = ck_arena_zalloc(arena, (n + 1) * sizeof(*copy));
	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = ck_arena_strdup(arena, list[i]);
		if (!copy[i])
			return ck_fail_nomem(err, "names", n);
	}
	*out = copy;
	return copy ? 0 : ck_fail_nomem(err, "names", n);
}

static int copy_names(struct ck_arena *arena, const char *const *list,
		      const char *const **out, struct ckpt_err *err)
{
	for (size_t i = 0; list && list[i]; i++)
		if (!ck_finding_is_name(list[i]))
			return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "there is no finding named '%.64s'", list[i]);
	return copy_list(arena, list, out, err);
}

static uint32_t default_threads(void)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < 1 ? 1 : cpus > 16 ? 16 : (uint32_t)cpus;
}

static int fill(struct ckpt *ck, const struct ckpt_open_opts *o, struct ckpt_err *err)
{
	struct ckpt_limits limits;
	int rc = ck_opts_take(&limits, sizeof(limits), o->limits, "limits", err);

	if (rc)
		return rc;
	ck_limits_fill(&limits, &ck->limits);
	rc = copy_names(&ck->arena, o->as_warning, &ck->findings.as_warning, err);
	if (rc)
		return rc;
	ck->begun = ck_zalloc(sizeof(*ck->begun));
	if (!ck->begun)
		return ck_fail_nomem(err, "a checkpoint", sizeof(*ck->begun));
	pthread_mutex_init(&ck->begun->lock, NULL);
	ck->pool = ck_fdpool_new(0);
	if (!ck->pool)
		return ck_fail_nomem(err, "a pool of files", 0);
	return ck_index_init(&ck->ix, ck->limits.memory_bytes, err);
}

/* What a verb needs that reads the source once more. */
static int remember(struct ckpt *ck, const char *const *paths, size_t npaths,
		    const struct ckpt_open_opts *o, struct ckpt_err *err)
{
	int rc;

	ck->threads = o->threads ? o->threads : default_threads();
	ck->path = ck_arena_zalloc(&ck->arena, npaths * sizeof(*ck->path));
	if (!ck->path)
		return ck_fail_nomem(err, "paths", npaths);
	for (; ck->npaths < npaths; ck->npaths++) {
		ck->path[ck->npaths] = ck_arena_strdup(&ck->arena, paths[ck->npaths]);
		if (!ck->path[ck->npaths])
			return ck_fail_nomem(err, "a path", strlen(paths[ck->npaths]));
	}
	if (o->tag)
		ck->tag = ck_arena_strdup(&ck->arena, o->tag);
	if (o->names)
		ck->names = ck_arena_strdup(&ck->arena, o->names);
	if (o->order_path)
		ck->order_path = ck_arena_strdup(&ck->arena, o->order_path);
	if ((o->tag && !ck->tag) || (o->names && !ck->names) || (o->order_path && !ck->order_path))
		return ck_fail_nomem(err, "a tag", 0);
	rc = copy_list(&ck->arena, o->frozen, &ck->frozen, err);
	return rc ? rc : copy_list(&ck->arena, o->buffers, &ck->buffers, err);
}

struct ck_input ck_ckpt_input(struct ckpt *ck)
{
	return (struct ck_input){
		.path = ck->path, .npaths = ck->npaths, .tag = ck->tag, .threads = ck->threads,
		.limits = ck->limits, .pool = ck->pool, .formats = ck->formats, .kept = &ck->kept,
		.find_model = true, .order_path = ck->order_path, .frozen = ck->frozen,
		.buffers = ck->buffers,
	};
}

int ck_ckpt_open(const struct ck_formats *formats, const char *const *paths, size_t npaths,
		 const struct ckpt_open_opts *opts, struct ckpt **ck_out, struct ckpt_err *err)
{
	struct ckpt_open_opts o;
	struct ck_input in;
	struct ckpt_err own = { 0 };
	struct ckpt *ck = NULL;
	int rc;

	if (!err)
		err = &own;	/* below, what is damaged is noted with the error's text */
	if (!ck_out || !paths || !npaths)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "no path is given");
	for (size_t i = 0; i < npaths; i++)
		if (!paths[i] || !paths[i][0])
			return npaths == 1 ?
			       ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "the path is an empty text (an unset variable?)") :
			       ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "path %zu of %zu is an empty text (an unset variable?)",
				       i + 1, npaths);
	rc = ck_opts_take(&o, sizeof(o), opts, "options of opening", err);
	if (rc)
		return rc;
	ck = ck_zalloc(sizeof(*ck));
	if (!ck)
		return ck_fail_nomem(err, "a checkpoint", sizeof(*ck));
	ck->formats = formats;
	rc = fill(ck, &o, err);
	if (!rc)
		rc = remember(ck, paths, npaths, &o, err);
	if (!rc) {
		in = ck_ckpt_input(ck);
		in.subtree = o.subtree;
		in.names = o.names;
		in.model_config = o.model_config;
		in.tp_rules = o.tp_rules;
		in.vocab_size = o.vocab_size;
		in.find_states = o.find_states;
		if (!o.keep_values)
			in.kept = NULL;
		rc = ck_format_open(&in, &ck->ix, &ck->findings, err);
		ck->driver = in.driver;
		ck->ix.order_path = ck->order_path;
		ck->ix.frozen = ck->frozen;
		ck->ix.buffers = ck->buffers;
	}
	if (!rc)
		rc = ck_overlay_check(ck, err);
	if (rc && ck->pool)	/* half a file, or a file that is being written? */
		rc = ck_fdpool_check(ck->pool, rc, err);
	if (rc)
		ckpt_close(ck);
	else
		*ck_out = ck;
	return rc;
}

void ckpt_close(struct ckpt *ck)
{
	if (!ck)
		return;
	ck_kept_release(&ck->kept);
	ck_index_release(&ck->ix);
	ck_findings_release(&ck->findings);
	ck_fdpool_free(ck->pool);
	ck_arena_release(&ck->arena);
	if (ck->begun)
		pthread_mutex_destroy(&ck->begun->lock);
	ck_free(ck->begun);
	ck_free(ck);
}
