/*
 * save_from.c -- saves what a step holds as a trainer's ranks would: reads the step SRC, and lets
 * RANKS savers of one process put equal shares of its elements.
 *
 *	save_from SRC ROOT TAG FORM STAGE WORLD RANKS [VALUES]
 *
 * FORM is deepspeed, universal or native. VALUES is a file of lines: "group LR INITIAL DECAY BETA1
 * BETA2 EPS STEP" for each param group, "steps STEPS SAMPLES SKIPPED", "config JSON",
 * "scheduler JSON".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ckpt.h>

#define MOST_GROUPS 64
#define MOST_RANKS 64

struct bytes {
	uint8_t *p;
	uint64_t n, cap;
};

struct model {
	struct ckpt *ck;
	struct ckpt_save_step step;
	struct ckpt_save_tensor *tensor;
	struct ckpt_save_state state[32];
	struct ckpt_save_group group[MOST_GROUPS];
	uint64_t elements;	/* of all tensors that are put */
};

static void die(const struct ckpt_err *err)
{
	fprintf(stderr, "save_from: %s: %s\n", err->where, err->msg);
	exit(err->code == CKPT_E_USAGE || err->code == CKPT_E_EXISTS ? 2 : 3);
}

static void *must(void *p)
{
	if (!p) {
		fputs("save_from: no memory\n", stderr);
		exit(3);
	}
	return p;
}

static int take(void *arg, const void *p, size_t n, struct ckpt_err *err)
{
	struct bytes *b = arg;

	(void)err;
	if (b->n + n > b->cap)
		b->p = must(realloc(b->p, b->cap = 2 * (b->n + n)));
	memcpy(b->p + b->n, p, n);
	b->n += n;
	return 0;
}

/* States of trainable tensors, as the first of them has them. */
static void take_states(struct model *m, uint64_t tensor)
{
	struct ckpt_state_info st;

	if (m->step.nstates)
		return;
	for (uint32_t i = 0; i < 32 && !ckpt_state_get(m->ck, tensor, i, &st, NULL); i++)
		if (strcmp(st.name, "weight"))
			m->state[m->step.nstates++] =
				(struct ckpt_save_state){ st.name, st.dtype };
}

static void take_tensors(struct model *m)
{
	struct ckpt_tensor_info t;
	struct ckpt_state_info st;
	uint64_t n = 0;

	while (!ckpt_tensor_get(m->ck, n, &t, NULL))
		n++;
	m->tensor = must(calloc(n, sizeof(*m->tensor)));
	for (uint64_t i = 0; i < n; i++) {
		struct ckpt_save_tensor *to = &m->tensor[i];

		ckpt_tensor_get(m->ck, i, &t, NULL);
		*to = (struct ckpt_save_tensor){
			.name = t.name, .shape = t.shape, .ndim = t.ndim, .role = t.role,
			.group = t.role == CKPT_ROLE_TRAINABLE ? t.group : -1,
			.alias_of = t.alias_of, .dtype = CKPT_F32,
		};
		for (uint32_t k = 0; !ckpt_state_get(m->ck, i, k, &st, NULL); k++)
			if (!strcmp(st.name, "weight")) {
				to->dtype = st.dtype;
				to->derived = (st.flags & CKPT_STATE_DERIVED) != 0;
			}
		if (t.role == CKPT_ROLE_TRAINABLE)
			take_states(m, i);
		if (t.role == CKPT_ROLE_TRAINABLE && (uint64_t)t.group >= m->step.ngroups)
			m->step.ngroups = (uint64_t)t.group + 1;
		m->elements += t.role == CKPT_ROLE_ALIAS ? 0 : t.numel;
	}
	m->step.tensor = m->tensor;
	m->step.ntensors = n;
	m->step.state = m->state;
	m->step.group = m->group;
}

static void take_values(struct model *m, const char *path)
{
	FILE *f = path ? fopen(path, "r") : NULL;
	static char line[1 << 20];
	uint64_t groups = 0;

	if (path && !f) {
		fprintf(stderr, "save_from: %s cannot be read\n", path);
		exit(3);
	}
	while (f && fgets(line, sizeof(line), f)) {
		struct ckpt_save_group g;

		line[strcspn(line, "\n")] = 0;
		if (groups < MOST_GROUPS &&
		    sscanf(line, "group %lf %lf %lf %lf %lf %lf %" SCNd64, &g.lr, &g.initial_lr,
			   &g.weight_decay, &g.beta1, &g.beta2, &g.eps, &g.step) == 7)
			m->group[groups++] = g;
		if (!strncmp(line, "config ", 7))
			m->step.ds_config = must(strdup(line + 7));
		if (!strncmp(line, "scheduler ", 10))
			m->step.scheduler = must(strdup(line + 10));
		sscanf(line, "steps %" SCNd64 " %" SCNd64 " %" SCNd64, &m->step.steps,
		       &m->step.samples, &m->step.skipped);
	}
	if (f)
		fclose(f);
	m->step.ngroups = groups > m->step.ngroups ? groups : m->step.ngroups;
}

/* Of a state's elements those that the ranks' shares of all elements have; 'at' is its first. */
static void put_state(const struct model *m, struct ckpt_saver **sv, uint32_t nranks,
		      uint64_t tensor, const char *name, enum ckpt_dtype dtype, uint64_t at)
{
	const struct ckpt_cat_opts o = { .size = sizeof(o), .state = name, .form = CKPT_CAT_RAW };
	const uint64_t es = ckpt_dtype_bits(dtype) / 8;
	struct bytes b = { 0 };
	struct ckpt_err err = { 0 };
	uint64_t first = 0;

	if (ckpt_cat(m->ck, tensor, &o, take, &b, NULL, &err))
		die(&err);
	for (uint32_t r = 0; r < nranks && first < b.n / es; r++) {
		const uint64_t end = m->elements * (r + 1) / nranks, n = b.n / es;
		const uint64_t last = end < at ? 0 : end - at < n ? end - at : n;

		if (last > first && ckpt_save_put(sv[r], tensor, name, first, last - first,
						  b.p + first * es, 0, &err))
			die(&err);
		first = last > first ? last : first;
	}
	free(b.p);
}

static void put_all(const struct model *m, struct ckpt_saver **sv, uint32_t nranks)
{
	uint64_t at = 0;

	for (uint64_t i = 0; i < m->step.ntensors; i++) {
		const struct ckpt_save_tensor *t = &m->tensor[i];
		uint64_t n = 1;

		if (t->role == CKPT_ROLE_ALIAS)
			continue;
		for (uint32_t d = 0; d < t->ndim; d++)
			n *= t->shape[d];
		if (!t->derived)
			put_state(m, sv, nranks, i, "weight", t->dtype, at);
		for (uint64_t s = 0; t->role == CKPT_ROLE_TRAINABLE && s < m->step.nstates; s++)
			put_state(m, sv, nranks, i, m->state[s].name, m->state[s].dtype, at);
		at += n;
	}
}

static void save(const struct model *m, const char *root, uint32_t nranks)
{
	struct ckpt_saver *sv[MOST_RANKS];
	struct ckpt_err err = { 0 };

	for (uint32_t r = 0; r < nranks; r++) {
		const struct ckpt_saver_opts o = {
			.size = sizeof(o), .root = root, .job = "save_from", .rank = r,
			.nranks = nranks, .threads = 1, .buffer_bytes = 1 << 20,
		};

		if (ckpt_saver_new(&o, &sv[r], &err))
			die(&err);
	}
	for (uint32_t r = 0; r < nranks; r++)
		if (ckpt_save_begin(sv[r], &m->step, &err)) {
			while (r < nranks)	/* and those that have begun give up */
				ckpt_saver_free(sv[--nranks]);
			while (nranks)
				ckpt_saver_free(sv[--nranks]);
			die(&err);
		}
	put_all(m, sv, nranks);
	for (uint32_t r = nranks; r-- > 0;)
		if (ckpt_save_commit(sv[r], &err))
			die(&err);
	for (uint32_t r = 0; r < nranks; r++)
		if (ckpt_save_wait(sv[r], 0, NULL, &err))
			die(&err);
	for (uint32_t r = 0; r < nranks; r++)
		ckpt_saver_free(sv[r]);
}

int main(int argc, char **argv)
{
	static struct model m;
	struct ckpt_err err = { 0 };
	const char *src;
	long nranks;

	if (argc < 8 || argc > 9) {
		fputs("usage: save_from SRC ROOT TAG FORM STAGE WORLD RANKS [VALUES]\n", stderr);
		return 2;
	}
	src = argv[1];
	nranks = strtol(argv[7], NULL, 10);
	if (nranks < 1 || nranks > MOST_RANKS)
		return 2;
	m.step = (struct ckpt_save_step){
		.size = sizeof(m.step), .tag = argv[3], .stage = (int)strtol(argv[5], NULL, 10),
		.world = (uint32_t)strtol(argv[6], NULL, 10),
		.to = !strcmp(argv[4], "native") ? CKPT_TO_NATIVE :
		      !strcmp(argv[4], "universal") ? CKPT_TO_UNIVERSAL : CKPT_TO_DEEPSPEED,
	};
	if (ckpt_open(&src, 1, NULL, &m.ck, &err))
		die(&err);
	take_tensors(&m);
	take_values(&m, argv[8]);
	save(&m, argv[2], (uint32_t)nranks);
	ckpt_close(m.ck);
	return 0;
}
