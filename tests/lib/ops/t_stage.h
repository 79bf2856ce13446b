/* For tests of staging: a destination in a folder of its own, and results of three units that are
 * staged there step by step. What must succeed is asserted. */
#ifndef T_STAGE_H
#define T_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/commit/ck_stage.h"

#define T_UNITS 3
#define T_UNIT 1000

struct t_scene {
	char *dir, *dst, *partial, *rec;
	struct ckpt_err err;
};

/* DIR is new, and DIR/name the destination, of which nothing is there yet. */
struct t_scene t_scene_open(const char *name);
void t_scene_close(struct t_scene *s);

struct ck_stage_opts t_stage_opts(const struct t_scene *s, bool is_dir);
/* The bytes of a unit. */
void t_stage_fill(char *p, uint64_t unit);
void t_stage_unit(struct ck_stage *stage, uint32_t file, uint64_t unit);
/* Begin, and write 'n' units of one file. */
struct ck_stage *t_stage_some(struct t_scene *s, const struct ck_stage_opts *o, uint64_t n);
/* End and commit it; nothing is left beside the result. */
void t_stage_finish(struct t_scene *s, struct ck_stage *stage);
/* The code of a begin that must fail, with a message. */
int t_stage_begin_fails(struct t_scene *s, const struct ck_stage_opts *o);
/* The file must hold all units. */
void t_stage_result(const char *path);

#endif
