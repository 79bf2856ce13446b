/* Copies of real checkpoints are damaged the way disks, copies and people damage
 * them, then converted. If this fails, a user gets weights made of two steps, of
 * swapped ranks or of half a file, and believes them.
 *
 * usage: test_damage [FILTER]
 * Environment: ZCKPT_FIXTURES (default build/fixtures), ZCKPT (build/zckpt).
 *
 * Each case first converts the copy before it is damaged, which must succeed: so
 * it is the damage that is refused. Then: the exit code, one of the findings on
 * stderr, the name of the place, and no output and no partial output left.
 * verify is asked three times: quick, --full, and with a manifest from before. */
#define _GNU_SOURCE
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_damage_cases.h"
#include "tests/lib/mutate/t_damage_file.h"
#include "tests/lib/run/t_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *fixtures;

static int has_one_of(const char *text, const char *words)
{
	char *list = t_fmt("%s", words), *save = NULL;
	int found = 0;

	for (char *w = strtok_r(list, "|", &save); w; w = strtok_r(NULL, "|", &save))
		found |= strstr(text, w) != NULL;
	free(list);
	return found;
}

static int failures(const struct t_damage_case *d, const struct t_run *run,
		    const char *out, const char *what)
{
	char **left = t_dir_list(out, NULL);
	int bad = 0;

	if (run->exit != d->exit || run->timed_out)
		bad += printf("     exit %d signal %d%s, wanted %d\n", run->exit,
			      run->signal, run->timed_out ? " (time-out)" : "",
			      d->exit);
	if (d->findings && !has_one_of(run->err, d->findings))
		bad += printf("     stderr names no %s\n", d->findings);
	if (d->place && !strstr(run->err, d->place))
		bad += printf("     stderr does not say %s\n", d->place);
	if (d->exit && left[0])
		bad += printf("     %s was left behind\n", left[0]);
	if (!d->exit && (!left[0] || left[1]))
		bad += printf("     output is not one file\n");
	if (bad)
		printf("     %s; stderr: %s\n", what, run->err);
	t_list_free(left);
	return bad != 0;
}

static void convert(const struct t_copy *k, const char *out, struct t_run *run)
{
	char *dst = t_fmt("%s/model.safetensors", out);

	t_run_zckpt(run, "convert", "--threads", "1", "--sync", "none", k->root, dst,
		    NULL);
	free(dst);
}

/*
 * One cell: an exit status of 1 and one of the findings, or of 0 and none.  MANIFEST_FILE_EXTRA is
 * a warning, so --strict.
 */
static int verify(const struct t_copy *k, const char *flag, const char *wanted, const char *what)
{
	struct t_run run;
	int bad = 0;

	t_run_zckpt(&run, "verify", "-q", "--strict", "--threads", "2", flag, k->root, NULL);
	if (run.exit != (wanted[0] ? 1 : 0) || run.timed_out)
		bad += printf("     verify, %s: exit %d signal %d\n", what, run.exit, run.signal);
	if (wanted[0] && !has_one_of(run.err, wanted))
		bad += printf("     verify, %s: stderr names no %s\n", what, wanted);
	if (bad)
		printf("     stderr: %s\n", run.err);
	t_run_free(&run);
	return bad != 0;
}

static const char *wanted(const struct t_damage_case *d, const char *cell)
{
	return cell ? cell : d->findings ? d->findings : T_NOTHING;
}

/* Damages it, and asks verify: quick, --full, and with the manifest that was there before. */
static int verify_all(const struct t_damage_case *d, const struct t_copy *k, const char *spare)
{
	char *manifest = t_fmt("%s/zckpt-manifest.json", k->tag_dir);
	struct t_run run;
	int bad;

	t_run_zckpt(&run, "verify", "-q", "--strict", "--write-manifest", k->root, NULL);
	bad = run.exit ? printf("     no manifest: %s\n", run.err) : 0;
	t_run_free(&run);
	t_damage_do(d, k);
	bad += verify(k, "--full", wanted(d, d->manifest), "with a manifest");
	t_damage_rename(manifest, spare);
	bad += verify(k, "--no-progress", wanted(d, d->quick), "quick");
	bad += verify(k, "--full", wanted(d, d->full), "full");
	free(manifest);
	return bad;
}

static int test_one(const struct t_damage_case *d)
{
	static const struct t_damage_case sound = { .exit = 0 };
	char *work = t_dir_new(), *out = t_fmt("%s/out", work);
	char *src = t_fmt("%s/%s/ckpt", fixtures, d->fixture), *latest;
	char *spare = t_fmt("%s/manifest", work);
	struct t_copy k = { .fixtures = fixtures, .root = t_fmt("%s/ckpt", work) };
	struct t_run before, after;
	size_t n;
	int bad;

	t_dir_copy(src, k.root);
	t_dir_make(out);
	latest = t_fmt("%s/latest", k.root);
	k.tag_dir = (char *)t_file_read(latest, &n);
	if (!k.tag_dir)
		t_die("%s cannot be read", latest);
	free(latest);
	latest = k.tag_dir;
	k.tag_dir = t_fmt("%s/%s", k.root, latest);
	convert(&k, out, &before);
	bad = failures(&sound, &before, out, "before the damage");
	t_dir_remove(out);
	t_dir_make(out);
	bad += verify_all(d, &k, spare);
	convert(&k, out, &after);
	bad += failures(d, &after, out, "after the damage");
	printf("%s %s\n", bad ? "FAIL" : "ok  ", d->name);
	fflush(stdout);
	t_run_free(&before);
	t_run_free(&after);
	t_dir_remove(work);
	free(k.root);
	free(k.tag_dir);
	free(latest);
	free(spare);
	free(src);
	free(out);
	free(work);
	return bad != 0;
}

int main(int argc, char **argv)
{
	const char *root = getenv("ZCKPT_FIXTURES"), *filter = argc > 1 ? argv[1] : "";
	int passed = 0, failed = 0;

	fixtures = t_fmt("%s/deepspeed", root && *root ? root : "build/fixtures");
	if (!t_is_dir(fixtures))
		t_die("no fixtures in %s; set ZCKPT_FIXTURES", fixtures);
	if (!t_exists(t_zckpt()))
		t_die("there is no program %s; set ZCKPT", t_zckpt());
	for (size_t i = 0; i < t_ndamage_cases; i++) {
		if (!strstr(t_damage_cases[i].name, filter))
			continue;
		if (test_one(&t_damage_cases[i]))
			failed++;
		else
			passed++;
	}
	free(fixtures);
	if (passed)
		printf("[  PASSED  ] %d test(s).\n", passed);
	if (failed)
		printf("[  FAILED  ] %d test(s).\n", failed);
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed || !passed;
}
