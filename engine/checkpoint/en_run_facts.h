/*
 * en_run_facts.h -- the settings of a run besides its state and its data: the model of config.json,
 * the optimizer's values, the schedule.  A step stores them, and a run that resumes from the step
 * compares its own with them.
 *
 * Which value is used where they differ is as in DeepSpeed (docs/ztrain/bits.md, "A resumed run").
 */
#ifndef EN_RUN_FACTS_H
#define EN_RUN_FACTS_H

#include <ckpt_value.h>

#include "engine/config/keys/en_settings.h"
#include "engine/model/en_model.h"
#include "engine/sched/en_scale.h"
#include "engine/sched/en_sched.h"
#include "engine/zero/en_zero.h"
#include "libckpt/base/ck_buf.h"

/* Its key in the client state: a JSON object of texts, as a text. */
#define EN_RUN_FACTS_KEY "ztrain_run"

#define EN_RUN_FACTS 64
#define EN_RUN_FACT_VALUE 168
struct en_run_fact {
	char key[40];		/* "hidden_size", "schedule.warmup" */
	char value[EN_RUN_FACT_VALUE];
};

struct en_run_facts {
	struct en_run_fact fact[EN_RUN_FACTS];	/* those of the model come first */
	uint32_t n, nmodel;
};

void en_run_facts_fill(struct en_run_facts *m, const struct en_model_config *model,
		       const struct en_settings *set, const struct en_sched *sched);
/* The recipe of products in 8 bits; without a call, and in steps that do not say, "off". */
void en_run_facts_fp8(struct en_run_facts *m, const char *recipe);
/*
 * What of the model is trained: "lora" and "freeze", where they are not "none"; and the seed that
 * decides what is dropped, where adapters have dropout.
 */
void en_run_facts_adapt(struct en_run_facts *m, const struct en_model *model, uint64_t seed);
/* The object's text. */
int en_run_facts_write(const struct en_run_facts *m, struct ck_buf *buf, struct ckpt_err *err);
/* False if the step has none.  'nmodel' is not known, and 0. */
bool en_run_facts_read(struct en_run_facts *m, struct ckpt_values *values);
/* The value of a key, or NULL. */
const char *en_run_facts_find(const struct en_run_facts *m, const char *key);

/* ---- what differs, a line each ---- */

#define EN_DIFFER_LINES 48
struct en_differ {
	char line[EN_DIFFER_LINES][200];
	uint32_t n;
	char keys[160];		/* of those whose value of this run holds: "lr, weight_decay" */
	unsigned unsaid;	/* EN_HAS_*: not stated, so the step's hold without a line */
};

/*
 * The model of the step is this run's, or CKPT_E_MISMATCH with the key and both values; with
 * 'allow' a line each.  A step that does not say gets a line.
 */
int en_differ_model(struct en_differ *d, const struct en_run_facts *now,
		    const struct en_run_facts *before, bool allow, const char *where,
		    struct ckpt_err *err);
/*
 * Both train the same parameters: "lora" and "freeze" are equal, or CKPT_E_MISMATCH with both.  A
 * step of another program ('before' NULL) is not looked at.
 */
int en_differ_trained(const struct en_run_facts *now, const struct en_run_facts *before,
		      const char *where, struct ckpt_err *err);
/* Schedule, clipping and the rest of 'now' that is not the model's: this run's hold. */
void en_differ_run(struct en_differ *d, const struct en_run_facts *now,
		   const struct en_run_facts *before);

/* What a step says of the values in force, besides en_run_facts. */
struct en_in_force {
	uint32_t ngroups;	/* of the step; 0 = it does not say */
	struct en_zero_hyper group[EN_SCHED_GROUPS];	/* NAN: it does not say */
	bool has_sched;		/* a state of a schedule */
};
void en_in_force_read(struct en_in_force *f, struct ckpt_values *values);

/*
 * Brings 'group' (this run's, 'n' of them) and the rates of 'sched' to what holds: the step's,
 * unless 'stated' (EN_HAS_*) has them or the schedule sets them.
 */
void en_differ_groups(struct en_differ *d, struct en_zero_hyper *group, uint32_t n,
		      struct en_sched *sched, const struct en_sched *own, unsigned stated,
		      const struct en_in_force *step);
/* The loss scale's settings: the step's hold.  'own' is as the configuration has it. */
void en_differ_scale(struct en_differ *d, const struct en_scale *own, const struct en_scale *now);
/* The data is another: 'why' says how it differs from the step's. */
void en_differ_data(struct en_differ *d, const char *why);
/* A line that is no difference of values. */
void en_differ_say(struct en_differ *d, const char *fmt, ...) CK_PRINTF(2, 3);

#endif
