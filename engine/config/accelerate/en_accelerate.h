/* en_accelerate.h -- accelerate's YAML, and the DeepSpeed configuration that is made of it. */
#ifndef EN_ACCELERATE_H
#define EN_ACCELERATE_H

#include "engine/config/keys/en_verdict.h"

/*
 * Read an accelerate configuration and make the DeepSpeed configuration of it that accelerate 1.15
 * makes; 'deepspeed_config_file' in it is read from the folder the process is in, as there.
 * 'num_processes' is used where the file has none (0 = the file must have it, as with accelerate
 * launch).
 *
 * What accelerate refuses is a verdict, and en_config_resolve() fails on it.  The errors above, for
 * both files; CKPT_E_UNSUPPORTED in a build without libyaml.
 */
int en_config_read_accelerate(struct en_config *cfg, const char *path, uint32_t num_processes,
			      struct ckpt_err *err);
int en_config_parse_accelerate(struct en_config *cfg, const char *text, uint64_t len,
			       const char *name, uint32_t num_processes, struct ckpt_err *err);

#endif
