/* en_owners.c -- see en_owners.h: messages of the library name the options of zckpt. */
#include "engine/checkpoint/en_owners.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

/* Where the library's text begins to say what zckpt has for it. */
#define ITS_ADVICE "; zckpt reshard"

/* Each 'from' in the text becomes 'to', as long as that fits. */
static void rename_option(char *text, size_t room, const char *from, const char *to)
{
	char rest[sizeof(((struct ckpt_err *)0)->msg)];

	for (char *at; (at = strstr(text, from)) && strlen(text) + strlen(to) < room;) {
		snprintf(rest, sizeof(rest), "%s", at + strlen(from));
		snprintf(at, room - (size_t)(at - text), "%s%s", to, rest);
	}
}

static void rename_options(struct ckpt_err *err)
{
	rename_option(err->msg, sizeof(err->msg), "--order", "--resume-order");
	rename_option(err->msg, sizeof(err->msg), "--frozen", "--resume-frozen");
	rename_option(err->msg, sizeof(err->msg), "--buffer", "--resume-buffer");
}

int en_owners_check(const struct ckpt *ck, const char *from, struct ckpt_err *err)
{
	const char *key, *value;
	int rc = 0;

	for (uint64_t i = 0; !rc && !ckpt_fact_get(ck, i, &key, &value, NULL); i++) {
		const char *end;

		if (strcmp(key, "states_left_out"))
			continue;
		end = strstr(value, ITS_ADVICE);
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, from, CKPT_NO_OFFSET,
			       "the optimizer's states cannot be given to parameters: %.*s; name "
			       "those that it lacks by --resume-frozen or --resume-buffer, or list "
			       "its own in their order, --resume-order FILE",
			       (int)(end ? (size_t)(end - value) : strlen(value)), value);
	}
	if (rc && err)
		rename_options(err);
	return rc;
}

int en_owners_failed(const struct en_owners *owners, int rc, struct ckpt_err *err)
{
	if (rc && err && (owners->order || owners->frozen || owners->buffers))
		rename_options(err);
	return rc;
}
