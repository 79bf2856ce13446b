/* zt_opt.c -- see zt_opt.h. */
#include "engine/main/zt_opt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/main/zt_say.h"

int zt_wrong_call(const void *name, const char *what)
{
	zt_say_error(name, ": %s", what);
	zt_say(name, ": '%s -h' lists the options", (const char *)name);
	return 2;
}

int zt_wrong_value(const struct opt_call *call, const struct opt *opt, const char *text,
		   const char *what)
{
	zt_say_error(call->arg, ": --%s %s: %s", opt->name, text, what);
	return 2;
}

int zt_set_whole(const struct opt_call *call, const struct opt *opt, const char *text)
{
	const struct opt_own *own = opt->to;
	int64_t *out = own->to;
	char *end, what[96];

	errno = 0;
	*out = strtoll(text, &end, 10);
	if (!errno && end != text && !*end && *out >= own->least && *out <= own->most)
		return 0;
	snprintf(what, sizeof(what), "expected a whole number from %lld to %lld",
		 (long long)own->least, (long long)own->most);
	return zt_wrong_value(call, opt, text, what);
}

int zt_set_real(const struct opt_call *call, const struct opt *opt, const char *text)
{
	const struct opt_own *own = opt->to;
	double *out = own->to;
	char *end, what[64] = "expected a number of 0 or more";

	*out = strtod(text, &end);
	if (end != text && !*end && *out >= 0 && (!own->most || *out <= (double)own->most))
		return 0;
	if (own->most)
		snprintf(what, sizeof(what), "expected a number from 0 to %lld",
			 (long long)own->most);
	return zt_wrong_value(call, opt, text, what);
}

/* The number of the word among those that the option has, or -1 after saying which these are. */
static int find_choice(const struct opt_call *call, const struct opt *opt, const char *text)
{
	const struct opt_own *own = opt->to;
	const char *near = opt_nearest(text, own->choice);
	char what[320] = "expected ";
	size_t n = strlen(what);

	for (int i = 0; own->choice[i]; i++) {
		if (opt_is_name(own->choice[i], text))
			return i;
		n += (size_t)snprintf(what + n, sizeof(what) - n, "%s%s",
				      !i ? "" : own->choice[i + 1] ? ", " : " or ",
				      own->choice[i]);
	}
	if (near && n < sizeof(what))
		snprintf(what + n, sizeof(what) - n, "; did you mean %s?", near);
	zt_wrong_value(call, opt, text, what);
	return -1;
}

int zt_set_choice(const struct opt_call *call, const struct opt *opt, const char *text)
{
	const struct opt_own *own = opt->to;
	const int i = find_choice(call, opt, text);

	if (i < 0)
		return 2;
	*(int *)own->to = (int)own->least + i;
	return 0;
}

int zt_set_name(const struct opt_call *call, const struct opt *opt, const char *text)
{
	const struct opt_own *own = opt->to;
	const int i = find_choice(call, opt, text);

	if (i < 0)
		return 2;
	*(const char **)own->to = own->choice[i];
	return 0;
}

uint64_t zt_size(const char *text)
{
	uint64_t bytes;

	return opt_size_parse(text, &bytes) || bytes > INT64_MAX ? 0 : bytes;
}

int zt_set_size(const struct opt_call *call, const struct opt *opt, const char *text)
{
	const struct opt_own *own = opt->to;
	const uint64_t bytes = zt_size(text);

	*(int64_t *)own->to = (int64_t)bytes;
	return bytes ? 0 : zt_wrong_value(call, opt, text, "expected a size: 512M, 80GB, 1.5GiB");
}
