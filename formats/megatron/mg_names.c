/*
 * mg_names.c -- what the tensors of the index are called, and of which parts of the parameters
 * they are made: Megatron-Core's own, or those of transformers by a table of names.
 *
 * The table is the one whose architecture config.json names.  Without config.json the arguments of
 * the run choose it, if they leave no doubt; what they say is then what the sizes are.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/mg.h"
#include "formats/megatron/mg_apply.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

#define EMBEDDING "embedding.word_embeddings.weight"

/* Each parameter is a tensor of its own name and shape. */
static int make_native(struct mg *mg, struct ckpt_err *err)
{
	int rc = 0;

	mg->is_native = true;
	mg->ntargets = 0;
	for (uint64_t i = 0; !rc && i < mg->nparams; i++)
		rc = ck_mg_target_add(mg, mg->param[i].key, mg->param[i].shape, mg->param[i].ndim,
				      i, NULL, 0, err);
	return rc;
}

/* ------------------------------------------------------------------------ the table */

static bool is_for(const struct mg_map *map, const char *architecture)
{
	for (uint64_t i = 0; i < map->narchitectures; i++)
		if (!strcmp(map->architecture[i], architecture))
			return true;
	return false;
}

/* That of the library for an architecture, or for the arguments; '*map' has no 'where' if none. */
static int find_table(const struct mg *mg, const struct mg_config *config, struct mg_map *map,
		      struct ckpt_err *err)
{
	struct mg_map one;
	const char *name, *text;
	uint64_t found = 0;
	int rc = 0;

	*map = (struct mg_map){ .where = NULL };
	for (size_t i = 0; !rc && (text = ck_mg_map_text(i, &name)) != NULL; i++) {
		bool fits;

		rc = ck_mg_map_parse(&one, text, strlen(text), name, err);
		if (rc)
			break;
		fits = config->path ? is_for(&one, config->architecture) :
				      ck_mg_args_choose(&one, mg->args);
		if (fits && !found++) {
			*map = one;
			continue;
		}
		ck_mg_map_release(&one);
	}
	if (rc || found > 1)
		ck_mg_map_release(map);
	return rc;
}

static int read_table(const char *path, struct mg_map *map, struct ckpt_err *err)
{
	char *text = NULL;
	uint64_t len;
	int rc = ck_look_read(NULL, path, MG_MAP_BYTES, &text, &len, err);

	if (!rc)
		rc = ck_mg_map_parse(map, text, len, path, err);
	ck_free(text);
	return rc;
}

/* ----------------------------------------------------------------------- the targets */

static int take_target(void *arg, const struct mg_made *made, struct ckpt_err *err)
{
	struct mg *mg = arg;
	const uint32_t ndim = mg->param[made->native].ndim;
	struct mg_box *box = ck_alloc_array(made->nboxes, sizeof(*box));
	int rc;

	if (!box)
		return ck_fail_nomem(err, "boxes", made->nboxes);
	for (uint64_t i = 0; i < made->nboxes; i++)
		box[i] = (struct mg_box){ made->box + 2 * i * ndim,
					  made->box + (2 * i + 1) * ndim };
	rc = ck_mg_target_add(mg, made->name, made->shape, made->ndim, made->native, box,
			      made->nboxes, err);
	ck_free(box);
	return rc;
}

/* Rows of the embedding are what the run says of its padded vocabulary. */
static int check_padded(const struct mg *mg, struct ckpt_err *err)
{
	const struct mg_param *p = ck_mg_param_find(mg, EMBEDDING);
	const uint64_t padded = mg->model.padded_vocab;

	if (p && p->ndim && padded && p->shape[0] != padded)
		return ck_fail(err, CKPT_E_MISMATCH, p->key, CKPT_NO_OFFSET,
			       "%" PRIu64 " rows, and the run was started with padded_vocab_size "
			       "%" PRIu64 " (files of two runs?)", p->shape[0], padded);
	return 0;
}

static int apply_table(struct mg *mg, const struct mg_map *map, const struct mg_config *config,
		       struct ckpt_err *err)
{
	const struct mg_taker taker = { mg, take_target };
	struct mg_native *native = ck_alloc_array(mg->nparams + 1, sizeof(*native));
	struct mg_sizes sizes = { .where = NULL };
	int rc = native ? check_padded(mg, err) : ck_fail_nomem(err, "names", mg->nparams);

	for (uint64_t i = 0; native && i < mg->nparams; i++)
		native[i] = (struct mg_native){ mg->param[i].key, mg->param[i].shape,
						mg->param[i].ndim };
	if (!rc)
		rc = ck_mg_sizes_fill(&sizes, map, config, mg->args, mg->fs.in->vocab_size, err);
	if (!rc)
		rc = ck_mg_apply(map, &sizes, native, mg->nparams, &taker, err);
	ck_mg_sizes_release(&sizes);
	ck_free(native);
	return rc;
}

/* The index says which configuration belongs to its tensors. */
static int note_model(struct mg *mg, const struct mg_map *map, const struct mg_config *config,
		      struct ckpt_err *err)
{
	struct ck_index *ix = mg->fs.ix;

	mg->model.family = ck_arena_strdup(&mg->fs.arena, map->family);
	if (config->path)
		ix->model_config = ck_arena_strdup(&ix->arena, config->path);
	ix->vocab_size = mg->fs.in->vocab_size;
	if (!mg->model.family || (config->path && !ix->model_config))
		return ck_fail_nomem(err, "a path", 0);
	return 0;
}

/* --------------------------------------------------------------------- what is asked */

static int find_config(const struct mg *mg, struct mg_config *config, struct ckpt_err *err)
{
	const struct ck_input *in = mg->fs.in;

	return in->model_config ? ck_mg_config_read(config, in->model_config, &in->limits, err) :
		ck_mg_config_find(config, in->pool, mg->fs.at.where, &in->limits, err);
}

#define WAYS "--model-config FILE takes the model's config.json, and --naming FILE a table of names"

/* Names of transformers are wanted, and there is no table: why. */
static int fail_table(const struct mg *mg, const struct mg_config *config, struct ckpt_err *err)
{
	if (config->path)
		return ck_fail(err, CKPT_E_UNSUPPORTED, config->path, CKPT_NO_OFFSET,
			       "names of %.60s are not known; --naming FILE takes a table of names "
			       "(docs/formats/name-maps.md), --naming native reads its own",
			       *config->architecture ? config->architecture : "a model without "
			       "\"architectures\"");
	return ck_fail(err, CKPT_E_NOTFOUND, mg->fs.at.where, CKPT_NO_OFFSET,
		       "no config.json is beside the checkpoint, and the run's arguments do not "
		       "say which model of transformers it is; " WAYS);
}

static void say_native(const struct mg *mg, const struct mg_config *config, const char *why)
{
	ck_findings_add(mg->fs.f, CK_FINDING_NAMES_NATIVE, mg->fs.at.where,
			"tensors have Megatron-Core's names and shapes: %s; " WAYS,
			why ? why : config->path ?
			"config.json is that of a family without a table" :
			"no config.json is beside the checkpoint");
}

/* What nobody asked for is made from the arguments if it can be. */
static int make_by_args(struct mg *mg, const struct mg_map *map, const struct mg_config *config,
			struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	int rc = apply_table(mg, map, config, &why);

	if (!rc)
		return note_model(mg, map, config, err);
	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_LIMIT)
		return ck_fail(err, why.code, why.where, why.offset, "%s", why.msg);
	say_native(mg, config, "the run's arguments do not fit a family that is known");
	return make_native(mg, err);
}

static int make_hf(struct mg *mg, const char *table, bool asked, struct ckpt_err *err)
{
	struct mg_config config = MG_CONFIG_INIT;
	struct mg_map map = { .where = NULL };
	int rc = find_config(mg, &config, err);

	if (!rc)
		rc = table ? read_table(table, &map, err) : find_table(mg, &config, &map, err);
	if (!rc && !map.where && asked) {
		rc = fail_table(mg, &config, err);
	} else if (!rc && !map.where) {
		say_native(mg, &config, NULL);
		rc = make_native(mg, err);
	} else if (!rc && !asked && !config.path) {
		rc = make_by_args(mg, &map, &config, err);
	} else if (!rc) {
		rc = apply_table(mg, &map, &config, err);
		if (!rc)
			rc = note_model(mg, &map, &config, err);
	}
	ck_mg_map_release(&map);
	ck_mg_config_release(&config);
	return rc;
}

int ck_mg_names_make(struct mg *mg, struct ckpt_err *err)
{
	const char *names = mg->fs.in->names;

	if (names && !strcmp(names, "native"))
		return make_native(mg, err);
	return make_hf(mg, names && strcmp(names, "hf") != 0 ? names : NULL, names != NULL, err);
}
