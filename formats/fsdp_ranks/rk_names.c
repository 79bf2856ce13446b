/*
 * rk_names.c -- names of rank files, and names of parameters in them.
 *
 *	model_world_size_N_rank_R.pt	verl and relatives; optim_ and extra_state_ likewise
 *	pytorch_model_fsdp[_I]_rankR.bin	accelerate; its optimizer is optimizer[_I]_rankR.bin
 *	pytorch_model_fsdp[_I].bin	FULL_STATE_DICT; its optimizer is optimizer[_I].bin
 *	ITEM_R.pt	torch_checkpointing, beside metadata.pkl, which says what the items are
 */
#include <string.h>

#include "formats/fsdp_ranks/rk_tc.h"
#include "libckpt/base/ck_sys.h"

static const char *const wrappers[] = {
	"_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.",
};

/* Pass over a text; false if it is not what is next. */
static bool skip(const char **at, const char *text)
{
	const size_t n = strlen(text);

	if (strncmp(*at, text, n) != 0)
		return false;
	*at += n;
	return true;
}

static bool number(const char **at, uint32_t *out)
{
	const size_t n = strspn(*at, "0123456789");
	uint32_t v = 0;

	if (!n || n > 7)
		return false;
	for (size_t i = 0; i < n; i++)
		v = v * 10 + (uint32_t)((*at)[i] - '0');
	*at += n;
	*out = v;
	return true;
}

static bool read_verl(const char *name, struct rk_name *out)
{
	static const char *const begin[RK_KINDS] = {
		[RK_MODEL] = "model_world_size_", [RK_OPTIM] = "optim_world_size_",
		[RK_EXTRA] = "extra_state_world_size_",
	};

	for (uint8_t kind = 0; kind < RK_KINDS; kind++) {
		const char *p = name;

		*out = (struct rk_name){ .naming = RK_VERL, .kind = kind };
		if (skip(&p, begin[kind]) && number(&p, &out->world) && skip(&p, "_rank_") &&
		    number(&p, &out->rank) && !strcmp(p, ".pt") && out->world)
			return true;
	}
	return false;
}

static bool read_accelerate(const char *name, struct rk_name *out)
{
	const char *p = name;

	*out = (struct rk_name){ .naming = RK_WHOLE, .kind = RK_MODEL };
	if (skip(&p, "optimizer"))
		out->kind = RK_OPTIM;
	else if (!skip(&p, "pytorch_model_fsdp"))
		return false;
	if (*p == '_' && p[1] >= '0' && p[1] <= '9') {
		p++;
		if (!number(&p, &out->model))
			return false;
	}
	if (skip(&p, "_rank")) {
		out->naming = RK_ACCEL;
		if (!number(&p, &out->rank))
			return false;
	}
	return !strcmp(p, ".bin");
}

static bool read_item(const char *name, struct rk_name *out)
{
	size_t n;

	*out = (struct rk_name){ .naming = RK_TC, .kind = RK_EXTRA };
	return ck_rk_tc_name(name, &n, &out->rank);
}

bool ck_rk_name_read(const char *name, struct rk_name *out)
{
	return read_verl(name, out) || read_accelerate(name, out) || read_item(name, out);
}

static bool has_index(const struct ck_tree *tree)
{
	const struct ck_tree_entry *e = ck_tree_find(tree, RK_TC_INDEX);

	return e && !e->is_dir;
}

int ck_rk_names_in(const struct ck_tree *tree)
{
	int best = 0;

	for (uint64_t i = 0; i < tree->n; i++) {
		struct rk_name id;

		if (tree->entry[i].is_dir || !ck_rk_name_read(tree->entry[i].name, &id) ||
		    (id.naming == RK_TC && !has_index(tree)) ||
		    (id.kind == RK_EXTRA && id.naming != RK_TC) ||
		    (id.kind == RK_OPTIM && id.naming != RK_VERL))
			continue;
		if (!best || id.naming < best)
			best = id.naming;
	}
	return best;
}

static size_t wrapper_at(const char *p)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(wrappers); i++)
		if (!strncmp(p, wrappers[i], strlen(wrappers[i])))
			return strlen(wrappers[i]);
	return 0;
}

const char *ck_rk_name_clean(struct rk *r, const char *name, size_t n)
{
	char *out = ck_arena_strndup(&r->arena, name, n), *to = out;

	if (!out)
		return NULL;
	for (const char *p = out; *p;) {
		const size_t wrapper = p == out || p[-1] == '.' ? wrapper_at(p) : 0;

		if (wrapper)
			p += wrapper;
		else
			*to++ = *p++;
	}
	*to = 0;
	return *out ? out : ck_arena_strndup(&r->arena, name, n);
}
