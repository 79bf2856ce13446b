/* cli_form.c -- see cli_form.h. */
#include <string.h>

#include <ckpt.h>

#include "cli_form.h"

const char *const cli_forms[] = {
	"deepspeed", "universal", "native", "dcp", "fsdp-ranks", NULL,
};

static const int form_of[] = {
	CKPT_TO_DEEPSPEED, CKPT_TO_UNIVERSAL, CKPT_TO_NATIVE, CKPT_TO_DCP, CKPT_TO_FSDP_RANKS,
};

const char *cli_form_name(int to)
{
	for (int i = 0; cli_forms[i]; i++)
		if (form_of[i] == to)
			return cli_forms[i];
	return "?";
}

int cli_form_find(const char *name)
{
	for (int i = 0; cli_forms[i]; i++)
		if (!strcmp(name, cli_forms[i]))
			return form_of[i];
	return -1;
}
