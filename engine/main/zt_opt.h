/* zt_opt.h -- lines of ztrain's tables of options, and the messages of a usage error. */
#ifndef ZT_OPT_H
#define ZT_OPT_H

#include "tools/shared/cli_opt.h"
#include "tools/shared/cli_term.h"

#define ZT_HEAD(text) { .kind = OPT_HEADING, .help = text }
/* 'field' is an int. */
#define ZT_FLAG(name_, field, text) \
	{ .kind = OPT_FLAG, .name = name_, .to = &(field), .help = text }
/* A const char *. */
#define ZT_TEXT(name_, arg, field, text) \
	{ .kind = OPT_TEXT, .name = name_, .value = arg, .to = &(field), .help = text }
#define ZT_OWN(name_, arg, text, ...) \
	{ .kind = OPT_OWN, .name = name_, .value = arg, .help = text, \
	  .to = &(struct opt_own){ __VA_ARGS__ } }
/* An int64_t. */
#define ZT_WHOLE(name_, arg, field, from, to_, text) \
	ZT_OWN(name_, arg, text, .set = zt_set_whole, .to = &(field), .least = from, .most = to_)
/* A double from 0 on, to 'to_' where that is not 0. */
#define ZT_REAL(name_, arg, field, to_, text) \
	ZT_OWN(name_, arg, text, .set = zt_set_real, .to = &(field), .most = to_)
/* A const char *: the one of 'names' that opt_is_name() says the word is. */
#define ZT_ONE_NAME(name_, arg, field, names, text) \
	ZT_OWN(name_, arg, text, .set = zt_set_name, .to = &(field), .choice = names)
/* An int: the first of 'names', compared in the same way, is number 'from'. */
#define ZT_ONE_OF(name_, arg, field, from, names, text) \
	ZT_OWN(name_, arg, text, .set = zt_set_choice, .to = &(field), .least = from, \
	       .choice = names)
/* An int64_t of bytes. */
#define ZT_SIZE(name_, field, text) \
	ZT_OWN(name_, "SIZE", text, .set = zt_set_size, .to = &(field))

int zt_set_whole(const struct opt_call *call, const struct opt *opt, const char *text);
int zt_set_real(const struct opt_call *call, const struct opt *opt, const char *text);
int zt_set_choice(const struct opt_call *call, const struct opt *opt, const char *text);
int zt_set_name(const struct opt_call *call, const struct opt *opt, const char *text);
int zt_set_size(const struct opt_call *call, const struct opt *opt, const char *text);

/* opt_call.wrong, where 'arg' is the name of the call, "ztrain bench".  Returns 2. */
int zt_wrong_call(const void *name, const char *what);
/* The same of a value, in one line. */
int zt_wrong_value(const struct opt_call *call, const struct opt *opt, const char *text,
		   const char *what);

/* "5GB", "512M", "1.5GiB", "40000": powers of 1000, with an i of 1024.  0 = it is no size. */
uint64_t zt_size(const char *text);

#endif
