/* t_verbs_save.c -- save sessions among the verbs of t_verbs.h: one or two ranks, one process. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_save.h"
#include "tests/lib/torture/t_verbs.h"

/* What one rank failed with, others hear of it in their own words. */
static int cause(const struct ckpt_err *of, uint32_t n, struct ckpt_err *err)
{
	uint32_t which = n;

	for (uint32_t r = n; r-- > 0;)
		if (of[r].code && (which == n || of[which].code == CKPT_E_INCOMPLETE))
			which = r;
	if (which == n)
		return 0;
	*err = of[which];
	return -(int)err->code;
}

/* All ranks in this process, the last one first: rank 0 then finds that others have ended. */
static int save_ranks(const struct t_trainer *t, struct ckpt_save_step *step, struct ckpt_err *err)
{
	struct ckpt_saver *sv[2] = { NULL, NULL };
	struct ckpt_err of[2] = { { 0 }, { 0 } };
	const uint32_t n = t->nranks;
	int rc = 0;

	for (uint32_t r = 0; !rc && r < n; r++)
		rc = t_saver(t, r, &sv[r], err);
	for (uint32_t r = 0; !rc && r < n; r++)
		rc = t_save_begin(t, sv[r], step, r, err);
	for (uint32_t r = 0; !rc && r < n; r++)
		rc = t_save_put(t, sv[r], step, r, err);
	for (uint32_t r = n; !rc && r-- > 0;)
		ckpt_save_commit(sv[r], &of[r]);
	for (uint32_t r = n; !rc && r-- > 0;)
		if (!of[r].code)
			ckpt_save_wait(sv[r], 0, NULL, &of[r]);
	for (uint32_t r = 0; r < n; r++)
		ckpt_saver_free(sv[r]);
	return rc ? rc : cause(of, n, err);
}

/* A native step has its job in it; of the others each try is another job. */
static int save_as(const struct t_vscene *s, unsigned flags, uint64_t seed, const char *tag,
		   struct ckpt_err *err)
{
	static unsigned njobs;
	const struct t_verb *v = s->verb;
	const int to = v->stage == T_SAVE_NATIVE ? CKPT_TO_NATIVE :
		       v->stage == T_SAVE_WEIGHTS ? CKPT_TO_HUGGINGFACE : CKPT_TO_DEEPSPEED;
	char *job = t_fmt(to == CKPT_TO_NATIVE ? "job" : "job %u", njobs++);
	const struct t_trainer t = {
		.root = s->dst, .job = job, .nranks = v->world, .threads = 1, .timeout_ms = 500,
		.seed = seed, .size = 1100, .own = strstr(v->what, "held"), .buffer_bytes = 1 << 20,
	};
	struct ckpt_save_step *step = t_save_step(&t, tag, to, v->stage % T_SAVE_NATIVE, 0);
	int rc;

	step->flags = flags;
	rc = save_ranks(&t, step, err);
	free(job);
	return rc;
}

int t_verb_save(const struct t_vscene *s, struct ckpt_err *err)
{
	return save_as(s, s->verb->flags, 2, "s", err);
}

/* Where a step has its job in it, the next job has the same name: what was left goes first. */
int t_verb_save_again(const struct t_vscene *s, struct ckpt_err *err)
{
	char *dst = t_fmt("%s/s", s->dst);

	if (s->verb->stage == T_SAVE_NATIVE)
		ckpt_discard(dst, NULL);
	free(dst);
	return save_as(s, CKPT_SAVE_FORCE, 2, "s", err);
}

int t_verb_save_older(const struct t_vscene *s, struct ckpt_err *err)
{
	struct t_verb v = *s->verb;
	struct t_vscene there = *s;

	v.stage = T_SAVE_NATIVE;
	v.world = 1;
	there.verb = &v;
	return save_as(&there, 0, 1, s->verb->flags ? "s" : "older", err);
}
