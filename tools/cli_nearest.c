/* cli_nearest.c -- names of tensors that were probably meant. */
#include <string.h>

#include "cli.h"

const char *cli_nearest_tensor(const struct ckpt *ck, const char *word)
{
	struct ckpt_tensor_info tensor;
	struct words names = { 0 };

	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &tensor, NULL); i++)
		words_add(&names, tensor.name);
	return names.n ? opt_nearest(word, names.list) : NULL;
}

/* 0 if one of them has it; else the nearest name of any goes to '*near_out'. */
static int is_unknown(const struct ckpt *const *ck, size_t n, const char *name,
		      const char **near_out)
{
	uint64_t tensor;

	*near_out = NULL;
	for (size_t i = 0; i < n; i++)
		if (!ckpt_tensor_find(ck[i], name, &tensor, NULL))
			return 0;
	for (size_t i = 0; i < n && !*near_out; i++)
		*near_out = cli_nearest_tensor(ck[i], name);
	return 1;
}

void cli_say_nearest(const struct args *args, const struct ckpt *const *ck, size_t n)
{
	const char *near;

	for (size_t i = 0; i < args->include.n; i++) {
		const char *name = args->include.list[i];

		if (strpbrk(name, "*?[") || !is_unknown(ck, n, name, &near))
			continue;
		if (near)
			cli_say("there is no tensor %s; did you mean %s?", out_name(name),
				out_name(near));
		else
			cli_say("there is no tensor %s; the names: zckpt map --all %s",
				out_name(name), out_word(args->sources.list[0]));
	}
}
