/* Every FSDP and DCP checkpoint of the fixtures is converted and compared with the live state of
 * the run that saved it, bit for bit. If this fails, users get wrong weights or moments from a
 * program that said nothing.
 *
 * usage: test_truth_fsdp [FILTER]   only cases whose name contains it
 * Environment: ZCKPT_FIXTURES (default build/fixtures), ZCKPT (build/zckpt).
 *
 * A case that must be refused has to be refused with nothing written; states whose owner the files
 * do not say must be left out.
 */
#define _GNU_SOURCE
#include "tests/lib/archive/t_st.h"
#include "tests/lib/fixture/t_each_case.h"
#include "tests/lib/fixture/t_expected.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_run.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
	const char *name;
	cJSON *json;
	char *ckpt, *work;
	struct t_st truth;
	struct t_report r;
	long states_out;
};

static int is_refused(const struct job *j)
{
	return cJSON_IsString(cJSON_GetObjectItem(j->json, "refuse")) &&
	       strncmp(j->name, "odd-", 4);
}

/* The second name of a tied weight is in the files or not, as the writer has it. */
static int is_tied(const struct job *j, const char *name)
{
	const cJSON *pair;

	cJSON_ArrayForEach(pair, cJSON_GetObjectItem(j->json, "tied"))
		if (!strcmp(name, cJSON_GetStringValue(cJSON_GetArrayItem(pair, 0))))
			return 1;
	return 0;
}

static int is_persistent(const struct job *j, const char *name)
{
	const cJSON *b;

	cJSON_ArrayForEach(b, cJSON_GetObjectItem(j->json, "buffers"))
		if (!strcmp(name, cJSON_GetStringValue(cJSON_GetObjectItem(b, "name"))))
			return cJSON_IsTrue(cJSON_GetObjectItem(b, "persistent"));
	return 1;
}

static void compare(struct job *j, const struct t_st *got, const char *state, int required)
{
	for (size_t i = 0; i < j->truth.n_tensors; i++) {
		const struct t_st_tensor *want = &j->truth.tensors[i], *g;
		char *name;
		const char *s = t_split(want->name, &name);

		if (strcmp(s, state)) {
			free(name);
			continue;
		}
		g = t_st_find(got, name);
		if (!g && required && !is_tied(j, name) && is_persistent(j, name))
			t_say(&j->r, "%s %s is missing", state, name);
		else if (g && (g->nbytes != want->nbytes || strcmp(g->dtype, want->dtype) ||
			       memcmp(g->data, want->data, g->nbytes)))
			t_say(&j->r, "%s %s has other bytes (%s, wanted %s)", state, name,
			      t_st_say(g), t_st_say(want));
		else
			j->r.equal += g != NULL;
		free(name);
	}
}

/* Nothing that the run had not. */
static void look_for_more(struct job *j, const struct t_st *got)
{
	for (size_t i = 0; i < got->n_tensors; i++) {
		const char *name = got->tensors[i].name;
		char *w = t_fmt("%s|weight", name), *b = t_fmt("%s|buffer", name);

		if (!t_st_find(&j->truth, w) && !t_st_find(&j->truth, b) && !is_tied(j, name))
			t_say(&j->r, "%s: the run has no tensor of this name", name);
		free(w);
		free(b);
	}
}

static int convert(struct job *j, const char *state, struct t_run *run, char **dst)
{
	*dst = t_fmt("%s/%s.safetensors", j->work, state ? state : "model");
	if (state)
		t_run_zckpt(run, "convert", "--state", state, "--dtype", "keep", "--tied", "dup",
			    "--sync", "none", j->ckpt, *dst, NULL);
	else
		t_run_zckpt(run, "convert", "--dtype", "keep", "--tied", "dup", "--sync", "none",
			    j->ckpt, *dst, NULL);
	return run->exit;
}

static void check_weights(struct job *j)
{
	struct t_run run;
	struct t_st got;
	char *dst;

	if (convert(j, NULL, &run, &dst)) {
		t_say(&j->r, "exit %d: %s", run.exit, run.err);
	} else if (t_st_open(&got, dst) < 0) {
		t_say(&j->r, "%s", got.err);
	} else {
		compare(j, &got, "weight", 1);
		compare(j, &got, "buffer", 1);
		look_for_more(j, &got);
		t_st_close(&got);
	}
	t_run_free(&run);
	free(dst);
}

/* HuggingFaceStorageWriter writes no optimizer. */
static int has_optimizer(const struct job *j)
{
	const cJSON *container = cJSON_GetObjectItem(j->json, "container");

	return !cJSON_IsString(container) || strcmp(container->valuestring, "hfs") != 0;
}

/* A state that is left out has to be named in a message. */
static void check_state(struct job *j, const char *state)
{
	const int is_provable = !cJSON_IsFalse(cJSON_GetObjectItem(j->json, "optimizer_provable"));
	struct t_run run;
	struct t_st got;
	char *dst;

	if (convert(j, state, &run, &dst)) {
		j->states_out++;
		if (is_provable && has_optimizer(j))
			t_say(&j->r, "state %s is left out: %s", state, run.err);
		if (!strstr(run.err, state))
			t_say(&j->r, "state %s: exit %d: %s", state, run.exit, run.err);
	} else if (!is_provable) {
		t_say(&j->r, "state %s was read, and the files do not say whose it is", state);
	} else if (t_st_open(&got, dst) < 0) {
		t_say(&j->r, "%s", got.err);
	} else {
		compare(j, &got, state, 1);
		t_st_close(&got);
	}
	t_run_free(&run);
	free(dst);
}

static void check_states(struct job *j)
{
	for (size_t i = 0; i < j->truth.n_tensors; i++) {
		char *name;
		const char *s = t_split(j->truth.tensors[i].name, &name);
		size_t k = 0;

		while (k < i && strcmp(strrchr(j->truth.tensors[k].name, '|') + 1, s))
			k++;
		if (k == i && strcmp(s, "weight") && strcmp(s, "buffer") && strcmp(s, "step"))
			check_state(j, s);
		free(name);
	}
}

static void check_refused(struct job *j)
{
	struct t_run run;
	char *dst, **left;

	if (!convert(j, NULL, &run, &dst))
		t_say(&j->r, "it was read, and must be refused");
	else if (run.signal || (run.exit != 1 && run.exit != 3 && run.exit != 4))
		t_say(&j->r, "exit %d signal %d: %s", run.exit, run.signal, run.err);
	left = t_dir_list(j->work, NULL);
	if (left[0])
		t_say(&j->r, "a refused run left %s", left[0]);
	t_list_free(left);
	t_run_free(&run);
	free(dst);
	j->r.equal = 1;
}

static int test_case(const char *dir, const char *name)
{
	char *json = t_fmt("%s/case.json", dir), *truth = t_fmt("%s/truth.safetensors", dir);
	size_t n;
	uint8_t *text = t_file_read(json, &n);
	struct job j = {
		.name = name, .json = cJSON_ParseWithLength((char *)text, n), .work = t_dir_new(),
	};
	int bad;

	j.ckpt = t_fmt("%s/ckpt", dir);
	if (!j.json)
		t_die("%s is no JSON", json);
	if (is_refused(&j)) {
		check_refused(&j);
	} else if (t_st_open(&j.truth, truth) < 0) {
		t_say(&j.r, "%s", j.truth.err);
	} else {
		check_weights(&j);
		check_states(&j);
		t_st_close(&j.truth);
	}
	if (!j.r.bad && !j.r.equal)
		t_say(&j.r, "nothing was compared");
	bad = j.r.bad != 0;
	if (bad)
		printf("FAIL %s\n%s", name, j.r.text);
	else if (is_refused(&j))
		printf("ok   %s (refused)\n", name);
	else
		printf("ok   %s: %ld equal, %ld states without names left out\n", name, j.r.equal,
		       j.states_out);
	t_dir_remove(j.work);
	cJSON_Delete(j.json);
	free(text);
	free(json);
	free(truth);
	free(j.ckpt);
	free(j.work);
	free(j.r.text);
	return bad;
}

int main(int argc, char **argv)
{
	return t_each_case("fsdp", argc < 2 ? NULL : argv[1], test_case);
}
