/* rep_dict.c -- texts that occur often are written once: sets of states, of ranks, layouts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rep_data.h"

static uint64_t hash_of(const char *text)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);	/* FNV-1a */

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return h;
}

/* The slot that has the text, or the empty one where it belongs. */
static size_t *slot_of(const struct rep_dict *dict, const char *text)
{
	size_t i = (size_t)hash_of(text) & (dict->nslots - 1);

	while (dict->slot[i] && strcmp(dict->text[dict->slot[i] - 1], text))
		i = (i + 1) & (dict->nslots - 1);
	return &dict->slot[i];
}

static void grow(struct rep_dict *dict)
{
	char **text;

	dict->room = dict->room ? 2 * dict->room : 64;
	text = cli_alloc(dict->room * sizeof(*text));
	if (dict->n)
		memcpy(text, dict->text, dict->n * sizeof(*text));
	cli_free(dict->text);
	cli_free(dict->slot);
	dict->text = text;
	dict->nslots = 2 * dict->room;
	dict->slot = cli_alloc(dict->nslots * sizeof(*dict->slot));
	for (size_t i = 0; i < dict->n; i++)
		*slot_of(dict, text[i]) = i + 1;
}

size_t rep_dict_take(struct rep_dict *dict, char *text)
{
	size_t *slot;

	if (dict->n == dict->room)
		grow(dict);
	slot = slot_of(dict, text);
	if (*slot) {
		free(text);
		return *slot - 1;
	}
	dict->text[dict->n] = text;
	*slot = ++dict->n;
	return dict->n - 1;
}

void rep_dict_json(const struct rep_dict *dict, struct json *json, const char *key)
{
	json_open(json, key, '[');
	for (size_t i = 0; i < dict->n; i++)
		fprintf(json->out, "%s%s", i ? "," : "", dict->text[i]);
	json_close(json, ']');
}

void rep_dict_release(struct rep_dict *dict)
{
	for (size_t i = 0; i < dict->n; i++)
		free(dict->text[i]);
	cli_free(dict->text);
	cli_free(dict->slot);
	memset(dict, 0, sizeof(*dict));
}

FILE *rep_text_open(char **text, size_t *size)
{
	FILE *out;

	*text = NULL;
	out = open_memstream(text, size);
	if (!out) {
		cli_say_error("no memory");
		exit(EXIT_TROUBLE);
	}
	return out;
}

void rep_real(FILE *out, double n)
{
	if (isfinite(n))
		fprintf(out, "%.9g", n);
	else
		fputs(isnan(n) ? "\"nan\"" : n < 0 ? "\"-inf\"" : "\"inf\"", out);
}
