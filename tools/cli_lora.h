/* cli_lora.h -- adapters of PEFT, and runs that train one. */
#ifndef CLI_LORA_H
#define CLI_LORA_H

#include "cli.h"

/* Whether the path is an adapter as PEFT saves it: the folder of its files, or one of them. */
int lora_is_adapter(const char *path);
/* "LoRA adapter for Qwen/Qwen2.5-7B, r=8", from its adapter_config.json; NULL if it is none. */
char *lora_text(const char *path);
/* Whether trained parameters are matrices of an adapter, by the names that PEFT has for them. */
enum lora_run { LORA_RUN_NONE, LORA_RUN_PEFT, LORA_RUN_OTHER };
enum lora_run lora_run_of(const struct ckpt *ck);
/* The call that writes the adapter of the run at 'src': PEFT's folder 'dst', or one file. */
char *lora_call(enum lora_run run, const char *src, const char *dst);

#endif
