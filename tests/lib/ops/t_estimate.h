/* Models and estimates for tests; what cannot be made ends the test. */
#ifndef T_ESTIMATE_H
#define T_ESTIMATE_H

#include <stdbool.h>

#include "libckpt/include/ckpt.h"

/* From the text of a config.json with ' for ". ckpt_model_free() it, as those below. */
struct ckpt_model *t_est_model(const char *text);
struct ckpt_model *t_est_named(const char *name);
struct ckpt_model *t_est_counted(uint64_t params);

/* The estimate of a setup, whose size is set; free() it. */
struct ckpt_estimate *t_est_of(const struct ckpt_model *model, struct ckpt_setup setup);
/* The bytes of a term that must be there once, and in these phases. */
uint64_t t_est_term(const struct ckpt_estimate *est, enum ckpt_place place, const char *name,
		    unsigned phases);
uint64_t t_est_gpu(const struct ckpt_estimate *est, const char *name, unsigned phases);
bool t_est_has(const struct ckpt_estimate *est, enum ckpt_place place, const char *name);

#endif
