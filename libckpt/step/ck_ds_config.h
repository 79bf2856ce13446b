/* ck_ds_config.h -- the file of a DeepSpeed configuration, for `plan` and `shard`. */
#ifndef CK_DS_CONFIG_H
#define CK_DS_CONFIG_H

#include "libckpt/json/ck_json.h"
#include "libckpt/json/ck_json_val.h"

/*
 * The object in the file, as HJSON is read by DeepSpeed; in 'arena'.
 *	CKPT_E_UNSUPPORTED  it is accelerate's YAML; the message says what makes JSON of it
 *	CKPT_E_CORRUPT      no object, and codes of reading a file and of the JSON
 */
int ck_ds_config_read(const char *path, uint64_t max_bytes, const struct ckpt_limits *limits,
		      struct ck_arena *arena, const struct ck_val **out, struct ckpt_err *err);

#endif
