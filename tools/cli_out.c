/* cli_out.c -- text for people: names and sizes. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static char *slot(void)
{
	static char slots[8][64];
	static unsigned next;

	next = (next + 1) % 8;
	return slots[next];
}

const char *out_size(uint64_t bytes)
{
	static const char *const units[] = { "kB", "MB", "GB", "TB", "PB", "EB" };
	double n = (double)bytes;
	unsigned i = 0;
	char *out = slot();

	if (bytes < 1000) {
		snprintf(out, 64, "%" PRIu64 " B", bytes);
		return out;
	}
	for (n /= 1000; n >= 999.95 && i < 5; i++)
		n /= 1000;
	snprintf(out, 64, "%.1f %s", n, units[i]);
	return out;
}

const char *out_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

const char *out_count(uint64_t n)
{
	char digits[32], *out = slot(), *to = out;
	int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = 0;
	return out;
}

const char *out_shape(const struct ckpt_tensor_info *tensor)
{
	static char *text;
	size_t size;
	FILE *f;

	free(text);
	text = NULL;
	f = open_memstream(&text, &size);
	if (!f)
		return "?";
	fputc('[', f);
	for (uint32_t i = 0; i < tensor->ndim; i++)
		fprintf(f, "%s%" PRIu64, i ? ", " : "", tensor->shape[i]);
	fputc(']', f);
	return fclose(f) || !text ? "?" : text;
}

const char *out_role(enum ckpt_role role)
{
	switch (role) {
	case CKPT_ROLE_TRAINABLE:
		return "trainable";
	case CKPT_ROLE_FROZEN:
		return "frozen";
	case CKPT_ROLE_BUFFER:
		return "buffer";
	case CKPT_ROLE_ALIAS:
		return "alias";
	case CKPT_ROLE_PLAIN:
		return "tensor";
	case CKPT_ROLE_UNTRAINED:
		return "untrained";
	}
	return "?";
}

const char *out_severity(enum ckpt_severity severity)
{
	return severity == CKPT_ERROR ? "error" : severity == CKPT_WARN ? "warning" : "note";
}
