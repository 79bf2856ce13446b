/* cli_lora.h -- adapters of PEFT, and runs that train one. */
#ifndef CLI_LORA_H
#define CLI_LORA_H

#include "cli.h"

/* Whether the path is an adapter as PEFT saves it: the folder of its files, or one of them. */
int lora_is_adapter(const char *path);
/* "LoRA adapter for Qwen/Qwen2.5-7B, r=8", from its adapter_config.json; NULL if it is none. */
char *lora_text(const char *path);
/* Whether the trained parameters of 'ck' are matrices of an adapter beside a frozen base. */
int lora_is_run(const struct ckpt *ck);
/* The call that makes a file for PEFT of the run at 'src'; 'dst' is a folder. */
char *lora_call(const char *src, const char *dst);

#endif
