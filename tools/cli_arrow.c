/* cli_arrow.c -- see cli_arrow.h. */
#include "cli_arrow.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A number of ranks at '*text', which is stepped over; 0 = there is none. */
static uint64_t ranks_at(const char **text)
{
	uint64_t n = 0;

	while (**text >= '0' && **text <= '9' && n <= MAX_WORLD)
		n = n * 10 + (uint64_t)(*(*text)++ - '0');
	return n;
}

static const char *skip_blanks(const char *text)
{
	return text + strspn(text, " \t");
}

/* Those that could be the name of a folder come last: it wins. */
int arrow_parse(const char *word, struct arrow *out)
{
	static const char *const joins[] = {
		"-->", "->", "=>", "→", ":", "to", ">", ",", "-",
	};
	const char *p = skip_blanks(word), *q;
	struct arrow found = { .from = ranks_at(&p) };

	for (size_t i = 0; found.from && i < sizeof(joins) / sizeof(joins[0]); i++) {
		const char *join = joins[i];

		q = skip_blanks(p);
		if (strncmp(q, join, strlen(join)))
			continue;
		q = skip_blanks(q + strlen(join));
		found.to = ranks_at(&q);
		if (!isdigit((unsigned char)q[-1]) || *skip_blanks(q))
			continue;
		if ((*join == ',' || !strcmp(join, "-")) && !access(word, F_OK))
			return 0;
		*out = found;
		return 1;
	}
	return 0;
}

uint64_t arrow_number(const char *word)
{
	const uint64_t n = ranks_at(&word);

	return *word ? 0 : n;
}

int arrow_is_number(const char *word, uint64_t *out)
{
	*out = arrow_number(word);
	return *out && access(word, F_OK);
}

int arrow_is_torn(const char *word)
{
	const char *p = word;

	return ranks_at(&p) && (!strcmp(p, "-") || !strcmp(p, "=")) && access(word, F_OK);
}

int arrow_is_bad(const char *word)
{
	const char *p = word;

	return ranks_at(&p) && access(word, F_OK) && !isalpha((unsigned char)*p);
}

const char *arrow_made_file(void)
{
	char path[4096], here[4096];
	const ssize_t n = readlink("/proc/self/fd/1", path, sizeof(path) - 1);
	struct stat st;
	size_t m;

	if (n < 0 || fstat(STDOUT_FILENO, &st) || !S_ISREG(st.st_mode) || st.st_size ||
	    !getcwd(here, sizeof(here)))
		return NULL;
	path[n] = 0;
	m = strlen(here);
	if (strncmp(path, here, m) || path[m] != '/' || strchr(path + m + 1, '/'))
		return NULL;
	return cli_strdup(path + m + 1);
}
