/* ck_model_lora.c -- a model with adapters: the rest of it is frozen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/estimate/ck_model.h"

#define USUAL_RANK 8u
#define MOST_RANK 65536u
#define TARGETS 7u
#define USUAL_TARGETS 5u	/* q_proj and v_proj */

static const char *const names[TARGETS] = {
	"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
};

static int bad(struct ckpt_err *err, const char *text, const char *what)
{
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "adapters \"%s\": %s", text, what);
}

/* '-' and '_' are the same. */
static bool is_word(const char *text, size_t n, const char *word)
{
	size_t i = 0;

	while (i < n && word[i] && (text[i] == word[i] ||
	       (strchr("-_", text[i]) && strchr("-_", word[i]))))
		i++;
	return i == n && !word[i];
}

static bool add_target(const char *name, size_t n, unsigned *targets)
{
	if (is_word(name, n, "all-linear")) {
		*targets = (1u << TARGETS) - 1;
		return true;
	}
	for (unsigned i = 0; i < TARGETS; i++)
		if (is_word(name, n, names[i])) {
			*targets |= 1u << i;
			return true;
		}
	return false;
}

static bool add_targets(const char *p, size_t n, unsigned *targets)
{
	bool known = true;

	for (size_t at = 0; known && at <= n;) {
		const char *plus = memchr(p + at, '+', n - at);
		const size_t len = plus ? (size_t)(plus - p) - at : n - at;

		known = add_target(p + at, len, targets);
		at += len + 1;
	}
	return known;
}

struct lora {
	uint64_t rank;
	unsigned targets;
	bool drops;
};

/* Keys that change no size are passed over. */
static int parse(const char *text, struct lora *out, struct ckpt_err *err)
{
	bool listing = false;
	char *end;

	*out = (struct lora){ .rank = USUAL_RANK };
	for (const char *p = text; *p; p += *p == ',') {
		const size_t n = strcspn(p, ",");

		if (!strncmp(p, "target=", 7)) {
			listing = true;
			if (!add_targets(p + 7, n - 7, &out->targets))
				return bad(err, text, "a target is not q_proj, k_proj, v_proj, "
					   "o_proj, gate_proj, up_proj, down_proj or all-linear");
		} else if (!strncmp(p, "r=", 2)) {
			listing = false;
			out->rank = strtoull(p + 2, &end, 10);
			if (end != p + n || !out->rank || out->rank > MOST_RANK || p[2] == '-')
				return bad(err, text, "r is not a rank from 1 to 65536");
		} else if (!strncmp(p, "dropout=", 8)) {
			const double drop = strtod(p + 8, &end);

			listing = false;
			if (end != p + n || n == 8 || !(drop >= 0) || drop >= 1)
				return bad(err, text, "dropout is not 0 or a number below 1");
			out->drops = drop > 0;
		} else if (!strncmp(p, "alpha=", 6) ||
			   (n == 6 && !strncmp(p, "rslora", 6))) {
			listing = false;
		} else if (!listing || !add_targets(p, n, &out->targets)) {
			return bad(err, text, "expected r=N, alpha=A, dropout=D, rslora, "
				   "target=NAME+NAME");
		}
		p += n;
	}
	if (!out->targets)
		out->targets = USUAL_TARGETS;
	return 0;
}

unsigned ck_model_lora_of(const char *name)
{
	for (unsigned i = 0; i < TARGETS; i++) {
		const char *at = strstr(name, names[i]);

		if (at && !strncmp(at + strlen(names[i]), ".lora_", 6))
			return 1u << i;
	}
	return 0;
}

uint64_t ck_model_lora_inputs(const struct ckpt_model *m, uint64_t *widest_out)
{
	const struct ckpt_arch *a = &m->info.arch;
	uint64_t sum = 0;

	*widest_out = 0;
	for (unsigned i = 0; i < TARGETS; i++) {
		const unsigned bit = m->lora_on & 1u << i;
		const uint64_t in = bit == CK_LORA_O ? a->heads * a->head_dim :
				    bit == CK_LORA_DOWN ? a->inter : bit ? a->hidden : 0;

		sum += in;
		*widest_out = ck_max_u64(*widest_out, in);
	}
	return sum;
}

/* Inputs and outputs of a target, together. */
static uint64_t width(const struct ckpt_arch *a, unsigned target)
{
	const uint64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;

	switch (target) {
	case 0: case 3: return a->hidden + q;
	case 1: case 2: return a->hidden + kv;
	default: return a->hidden + a->inter;
	}
}

static int add_layer(struct ckpt_model *m, uint32_t layer, uint64_t rank, unsigned targets,
		     struct ckpt_err *err)
{
	const struct ckpt_arch *a = &m->info.arch;
	int rc = 0;

	for (unsigned i = 0; !rc && i < TARGETS; i++) {
		/* A and B, each a module of its own; A is [rank, in], and one has 'hidden' */
		const uint64_t both = width(a, i);

		if (!(targets & 1u << i))
			continue;
		for (int k = 0; !rc && k < 2; k++)
			rc = ck_model_add(m, &(struct ck_param){
				.numel = rank * (k ? both - a->hidden : a->hidden),
				.module = ++m->modules, .block = layer + 1,
			}, err);
	}
	return rc;
}

int ck_model_lora(struct ckpt_model *m, const char *text, struct ckpt_err *err)
{
	const struct ckpt_arch *a = &m->info.arch;
	struct lora l;
	int rc = parse(text, &l, err);

	if (rc)
		return rc;
	if (!a->layers || !a->gated || a->experts || a->kv_rank)
		return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
			       "adapters are known for models of the shape of Llama and Qwen: this "
			       "one %s", !a->layers ? "has no known shape: give its config.json" :
			       a->experts ? "has experts" : "has another one");
	if (m->lora || m->info.trainable != m->info.params)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "the model has adapters or frozen parameters already");
	for (uint64_t i = 0; i < m->n; i++) {
		m->param[i].frozen = true;
		m->param[i].group = 0;
	}
	for (uint32_t i = 0; !rc && i < a->layers; i++)
		rc = add_layer(m, i, l.rank, l.targets, err);
	if (rc)
		return rc;
	m->lora = l.rank;
	m->lora_on = l.targets;
	m->lora_drops = l.drops;
	ck_model_sum(m);
	return 0;
}
