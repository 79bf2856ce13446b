/* The entry of libFuzzer. Which target it is, the program's name says: "fuzz-zip". */
#include "tests/fuzz/fz.h"

#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const struct fz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *dash = strrchr((*argv)[0], '-');

	(void)argc;
	target = dash ? fz_target_find(dash + 1) : NULL;
	if (!target)
		fz_die("%s ends in no target's name", (*argv)[0]);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	fz_run(target, p, n);
	return 0;
}
