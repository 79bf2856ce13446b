/* Every Megatron-Core checkpoint of the fixtures, and every one of DeepSpeed with experts, tensor
 * or pipeline parallelism, is converted and compared with the live state of the run that saved it,
 * bit for bit.  If this fails, users get wrong weights or moments from a program that said nothing.
 *
 * usage: test_truth_parallel [FILTER]   only cases whose name contains it
 * Environment: ZCKPT_FIXTURES (default build/fixtures), ZCKPT (build/zckpt).
 *
 * Steps of DeepSpeed are compared once more after reshard put them on other ranks or expert ranks,
 * and after it joined the slices and stages of parallel ones.
 * DeepSpeed's own universal form of a run is compared as well.  A case that must be refused has to
 * be refused with nothing written.  States that the files do not name must be left out by name, and
 * those that Megatron-Core wrote wrong must not be given.
 */
#define _GNU_SOURCE
#include "tests/lib/archive/t_st.h"
#include "tests/lib/fixture/t_converted.h"
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
	const char *option, *value;	/* what the reader needs besides the folder, or NULL */
	int universal;		/* 1 = DeepSpeed's, 2 = zckpt's own */
	struct t_st truth;
	struct t_report r;
	long left_out;
};

static int has_flag(const struct job *j, const char *key)
{
	return cJSON_IsTrue(cJSON_GetObjectItem(j->json, key));
}

static int is_megatron(const struct job *j)
{
	return strstr(j->name, "mc") == j->name || strstr(j->name, "broken-mc") == j->name;
}

/* "NAME|STATE", or "*|STATE" for all. */
static int is_named(const cJSON *list, const char *name, const char *state)
{
	char *one = t_fmt("%s|%s", name, state), *any = t_fmt("*|%s", state);
	const cJSON *e;
	int found = 0;

	cJSON_ArrayForEach(e, list)
		found |= !strcmp(e->valuestring, one) || !strcmp(e->valuestring, any);
	free(one);
	free(any);
	return found;
}

/* Not in the files, or wrong there.  Buckets without names are found by their bytes. */
static int is_absent(const struct job *j, const char *name, const char *state)
{
	const char *how = cJSON_GetStringValue(cJSON_GetObjectItem(j->json, "optimizer_in_files"));

	if (how && (!strcmp(how, "by bucket") || !strcmp(how, "one object")))
		return 0;
	return is_named(cJSON_GetObjectItem(j->json, "not_in_checkpoint"), name, state);
}

/* DeepSpeed's converter: the vocabulary is cut, and its masters are what weights are made of. */
static int is_changed(const struct job *j, const char *name, const char *state)
{
	const cJSON *all = cJSON_GetObjectItem(j->json, "universal_against_truth");
	const int weight = !strcmp(state, "weight");

	return j->universal == 1 &&
	       is_named(cJSON_GetObjectItem(all, "different"), name, weight ? "master" : state);
}

static int is_prefix(const struct t_st_tensor *got, const struct t_st_tensor *want)
{
	return got->nbytes < want->nbytes && !strcmp(got->dtype, want->dtype) &&
	       !memcmp(got->data, want->data, got->nbytes);
}

static void compare(struct job *j, const struct t_st *got, const char *state)
{
	for (size_t i = 0; i < j->truth.n_tensors; i++) {
		const struct t_st_tensor *want = &j->truth.tensors[i], *g;
		char *name;
		const char *s = t_split(want->name, &name);

		if (strcmp(s, state) || is_changed(j, name, state)) {
			free(name);
			continue;
		}
		g = t_st_find(got, name);
		if (is_absent(j, name, state)) {
			j->left_out++;
			if (g)
				t_say(&j->r, "%s %s is given, and the files do not have it", state,
				      name);
		} else if (!g) {
			t_say(&j->r, "%s %s is missing", state, name);
		} else if (j->universal && strstr(name, "word_embeddings") && is_prefix(g, want)) {
			j->r.equal++;
		} else if (g->nbytes != want->nbytes || strcmp(g->dtype, want->dtype) ||
			   memcmp(g->data, want->data, g->nbytes)) {
			t_say(&j->r, "%s %s has other bytes (%s, wanted %s)", state, name,
			      t_st_say(g), t_st_say(want));
		} else {
			j->r.equal++;
		}
		free(name);
	}
}

/* Nothing that the run had not; AutoEP's routers have a second name. */
static void look_for_more(struct job *j, const struct t_st *got)
{
	for (size_t i = 0; i < got->n_tensors; i++) {
		const char *name = got->tensors[i].name;
		char *w = t_fmt("%s|weight", name);

		if (!t_st_find(&j->truth, w) && !strstr(name, ".gate.gate."))
			t_say(&j->r, "%s: the run has no tensor of this name", name);
		free(w);
	}
}

static int convert(struct job *j, const char *state, struct t_run *run, char **dst)
{
	const char *option = j->option ? j->option : "--sync";
	const char *value = j->option ? j->value : "none";

	*dst = t_fmt("%s/%s%s.safetensors", j->work, j->universal ? "universal-" : "", state);
	if (strcmp(state, "weight"))
		t_run_zckpt(run, "convert", "--state", state, "--dtype", "keep", "--sync", "none",
			    "--force", option, value, j->ckpt, *dst, NULL);
	else
		t_run_zckpt(run, "convert", "--dtype", "keep", "--tied", "dup", "--sync", "none",
			    "--force", option, value, j->ckpt, *dst, NULL);
	return run->exit;
}

static void check_state(struct job *j, const char *state)
{
	struct t_run run;
	struct t_st got;
	char *dst;

	if (convert(j, state, &run, &dst)) {
		if (is_absent(j, "", state) && strstr(run.err, state))
			j->left_out++;
		else
			t_say(&j->r, "state %s: exit %d: %s", state, run.exit, run.err);
	} else if (t_st_open(&got, dst) < 0) {
		t_say(&j->r, "%s", got.err);
	} else {
		compare(j, &got, state);
		if (!strcmp(state, "weight"))
			look_for_more(j, &got);
		t_st_close(&got);
	}
	t_run_free(&run);
	free(dst);
}

static void check_all(struct job *j)
{
	static const char *const states[] = { "weight", "master", "exp_avg", "exp_avg_sq" };

	for (size_t k = 0; k < sizeof(states) / sizeof(*states); k++) {
		int has = 0;

		for (size_t i = 0; i < j->truth.n_tensors; i++)
			has |= !strcmp(strrchr(j->truth.tensors[i].name, '|') + 1, states[k]);
		if (has)
			check_state(j, states[k]);
	}
}

static void check_refused(struct job *j)
{
	struct t_run run;
	char *dst, **left;

	if (!convert(j, "weight", &run, &dst))
		t_say(&j->r, "it was read, and must be refused");
	else if (run.signal || (run.exit != 3 && run.exit != 4))
		t_say(&j->r, "exit %d signal %d: %s", run.exit, run.signal, run.err);
	left = t_dir_list(j->work, NULL);
	if (left[0])
		t_say(&j->r, "a refused run left %s", left[0]);
	t_list_free(left);
	t_run_free(&run);
	free(dst);
	j->r.equal = 1;
}

/* ---- on other ranks ---- */

static int number_of(const struct job *j, const char *key)
{
	return cJSON_GetObjectItem(j->json, key) ? cJSON_GetObjectItem(j->json, key)->valueint : 0;
}

/* A number, or the least of a list. */
static int model_number(const struct job *j, const char *key)
{
	const cJSON *model = cJSON_GetObjectItem(cJSON_GetObjectItem(j->json, "spec"), "model");
	const cJSON *v = cJSON_GetObjectItem(model, key), *e;
	int least = cJSON_IsArray(v) ? v->child->valueint : v ? v->valueint : 0;

	cJSON_ArrayForEach(e, v)
		least = e->valueint < least ? e->valueint : least;
	return least;
}

static int is_pyramid(const struct job *j)
{
	const cJSON *model = cJSON_GetObjectItem(cJSON_GetObjectItem(j->json, "spec"), "model");
	const cJSON *ep = cJSON_GetObjectItem(model, "ep"), *e;
	int differs = 0;

	cJSON_ArrayForEach(e, ep)
		differs |= e->valueint != ep->child->valueint;
	return differs;
}

/* ep = 0: as the source has it. */
static int reshard_case(struct job *j, const char *src, const char *dst, int world, int ep)
{
	char *n = t_fmt("%d", world), *k = t_fmt("%d", ep);
	struct t_run run;
	int rc;

	if (ep)
		t_run_zckpt(&run, "reshard", "--sync", "none", "--world", n, "--ep", k, src, dst,
			    NULL);
	else
		t_run_zckpt(&run, "reshard", "--world", n, "--sync", "none",
			    j->option ? j->option : "--sync", j->option ? j->value : "none", src,
			    dst, NULL);
	rc = run.exit;
	if (rc && !(ep && is_pyramid(j) && rc == 3 && strstr(run.err, "several numbers")))
		t_say(&j->r, "world %d ep %d: exit %d: %s", world, ep, rc, run.err);
	t_run_free(&run);
	free(n);
	free(k);
	return rc;
}

/* The result has every state of the run. */
static void check_on(struct job *j, int world, int ep)
{
	char *ckpt = j->ckpt, *dst = t_fmt("%s/on-%d-%d", j->work, world, ep);

	if (!reshard_case(j, ckpt, dst, world, ep)) {
		j->ckpt = dst;
		check_all(j);
		j->ckpt = ckpt;
	}
	free(dst);
}

/* AutoEP's model file is pickled otherwise: lists of its layers are no longer shared. */
static int is_pickled_anew(const struct job *j, const char *file)
{
	return strstr(j->name, "autoep") && !strncmp(file, "mp_rank_", 8);
}

static void compare_files(struct job *j, const char *a, const char *b)
{
	char **names = t_dir_list(a, NULL);

	for (size_t i = 0; names[i]; i++) {
		char *x = t_fmt("%s/%s", a, names[i]), *y = t_fmt("%s/%s", b, names[i]);
		size_t n, m;
		uint8_t *p = t_file_read(x, &n), *q = t_file_read(y, &m);

		if (!is_pickled_anew(j, names[i]) && (n != m || memcmp(p, q, n)))
			t_say(&j->r, "%s differs after the way there and back", names[i]);
		else
			j->r.equal++;
		free(p);
		free(q);
		free(x);
		free(y);
	}
	t_list_free(names);
}

/* Other expert ranks, and then the first again, give the files of no change. */
static void check_way_back(struct job *j, int ep)
{
	const int world = number_of(j, "world"), had = model_number(j, "ep");
	char *same = t_fmt("%s/same", j->work), *there = t_fmt("%s/there", j->work);
	char *back = t_fmt("%s/back", j->work);

	if (!reshard_case(j, j->ckpt, same, world, 0) &&
	    !reshard_case(j, j->ckpt, there, ep * 2, ep) &&
	    !reshard_case(j, there, back, world, had)) {
		char *a = t_fmt("%s/global_step2", same), *b = t_fmt("%s/global_step2", back);

		compare_files(j, a, b);
		free(a);
		free(b);
	}
	free(same);
	free(there);
	free(back);
}

static int is_kind(const struct job *j, const char *kind)
{
	const char *is = cJSON_GetStringValue(cJSON_GetObjectItem(j->json, "kind"));

	return is && !strcmp(is, kind);
}

/* Tensor and pipeline parallelism: positions stay, and each has other data-parallel ranks. */
static void check_positions(struct job *j)
{
	const cJSON *layout = cJSON_GetObjectItem(j->json, "layout");
	const cJSON *dp = cJSON_GetObjectItem(layout, "dp");
	const int npos = number_of(j, "world") / (dp ? dp->valueint : 1);

	if (!is_kind(j, "autotp") && !is_kind(j, "megtp") && !is_kind(j, "pipe"))
		return;
	for (int n = 1; n <= 3; n++)
		check_on(j, npos * n, 0);
}

/* The universal form has all states of the run, with a vocabulary without its padding. */
static void check_to_universal(struct job *j, const char *dir)
{
	char *ckpt = j->ckpt, *dst = t_fmt("%s/to-universal", j->work);
	struct t_run run;

	if (!is_kind(j, "autotp") && !is_kind(j, "megtp") && !is_kind(j, "pipe")) {
		free(dst);
		return;
	}
	t_run_zckpt(&run, "reshard", "--to", "universal", "--sync", "none",
		    j->option ? j->option : "--sync", j->option ? j->value : "none", ckpt, dst,
		    NULL);
	if (run.exit) {
		t_say(&j->r, "to universal: exit %d: %s", run.exit, run.err);
	} else {
		char *theirs = t_fmt("%s/universal/global_step2_universal", dir);
		char *ours = t_fmt("%s/global_step2_universal", dst);

		j->ckpt = dst;
		j->universal = 2;
		check_all(j);
		j->universal = 0;
		j->ckpt = ckpt;
		if (cJSON_HasObjectItem(j->json, "universal_against_truth"))
			t_converted(&j->r, theirs, ours);
		free(theirs);
		free(ours);
	}
	t_run_free(&run);
	free(dst);
}

/* One form of whole tensors, in which no rules are needed any more. */
static void check_joined(struct job *j, const char *option, const char *value, const char *world)
{
	const char *rules = j->option;
	char *ckpt = j->ckpt, *dst = t_fmt("%s/joined-%s", j->work, value);
	struct t_run run;

	t_run_zckpt(&run, "reshard", option, value, "--world", world, "--sync", "none",
		    rules ? rules : "--sync", rules ? j->value : "none", ckpt, dst, NULL);
	if (run.exit) {
		t_say(&j->r, "%s %s: exit %d: %s", option, value, run.exit, run.err);
	} else {
		j->ckpt = dst;
		j->option = NULL;
		check_all(j);
		j->option = rules;
		j->ckpt = ckpt;
	}
	t_run_free(&run);
	t_dir_remove(dst);
	free(dst);
}

/* Slices and stages are joined for forms that have neither; DeepSpeed's own has pipelines. */
static void check_whole(struct job *j)
{
	const cJSON *pp = cJSON_GetObjectItem(cJSON_GetObjectItem(j->json, "layout"), "pp");

	if (!is_kind(j, "autotp") && !is_kind(j, "megtp") && !is_kind(j, "pipe"))
		return;
	check_joined(j, "--to", "native", "2");
	check_joined(j, "--to", "dcp", "3");
	check_joined(j, "--to", "fsdp-ranks", "7");
	if (!pp || pp->valueint == 1)
		check_joined(j, "--tp", "1", "3");
}

static void check_experts(struct job *j)
{
	const int world = number_of(j, "world"), experts = model_number(j, "experts");

	if (!is_kind(j, "moe") && !is_kind(j, "autoep"))
		return;
	check_on(j, world * 2, 0);
	check_on(j, 3, 1);
	check_on(j, experts, experts);
	if (!is_pyramid(j))
		check_way_back(j, model_number(j, "ep") == 1 ? 2 : 1);
}

static cJSON *list_of(cJSON *rules, const char *key)
{
	cJSON *list = cJSON_GetObjectItem(rules, key);

	return list ? list : cJSON_AddArrayToObject(rules, key);
}

static void add_pattern(cJSON *rules, const char *key, const char *name)
{
	char *pattern = t_fmt("^%s$", name);

	cJSON_AddItemToArray(list_of(rules, key), cJSON_CreateString(pattern));
	free(pattern);
}

/* The user's rules, of the words of the case; every other tensor is whole on each rank. */
static void write_rules(struct job *j, const cJSON *needs, const char *path)
{
	cJSON *rules = cJSON_CreateObject();
	char *text;
	FILE *f = fopen(path, "w");

	for (size_t i = 0; i < j->truth.n_tensors; i++) {
		char *name;
		const char *s = t_split(j->truth.tensors[i].name, &name);
		const char *how = cJSON_GetStringValue(cJSON_GetObjectItem(needs, name));

		if (!strcmp(s, "weight") && !how)
			add_pattern(rules, "tp_replicated_parameter_patterns", name);
		else if (!strcmp(s, "weight") && strstr(how, "dim 1"))
			add_pattern(rules, "parameter_with_row_parallelism_patterns", name);
		else if (!strcmp(s, "weight") && strstr(how, "2 parts"))
			add_pattern(rules, "parameter_with_2_sub_params_cat_dim_0", name);
		free(name);
	}
	text = cJSON_Print(rules);
	if (!f || fputs(text, f) < 0 || fclose(f))
		t_die("%s: cannot be written", path);
	free(text);
	cJSON_Delete(rules);
}

/* Without the rules nothing is joined, and the message says what is missing. */
static void check_without_rules(struct job *j)
{
	struct t_run run;
	char *dst;

	if (!convert(j, "weight", &run, &dst))
		t_say(&j->r, "it was read, and the files do not say how to join its slices");
	else if (run.exit != 3 || !strstr(run.err, "--tp-rules"))
		t_say(&j->r, "without rules: exit %d: %s", run.exit, run.err);
	t_run_free(&run);
	free(dst);
}

static void check_good(struct job *j, const char *dir)
{
	const cJSON *needs = cJSON_GetObjectItem(j->json, "needs_rules");
	char *rules = t_fmt("%s.rules", j->work);

	if (needs) {
		check_without_rules(j);
		write_rules(j, needs, rules);
		j->option = "--tp-rules";
		j->value = rules;
	}
	check_all(j);
	if (number_of(j, "stage")) {
		check_experts(j);
		check_positions(j);
		check_to_universal(j, dir);
		check_whole(j);
	}
	free(j->ckpt);
	j->ckpt = t_fmt("%s/universal", dir);
	j->universal = cJSON_HasObjectItem(j->json, "universal_against_truth");
	if (j->universal) {
		check_all(j);
		check_whole(j);
	}
	remove(rules);
	free(rules);
}

static int test_case(const char *dir, const char *name)
{
	char *json = t_fmt("%s/case.json", dir), *truth = t_fmt("%s/truth.safetensors", dir);
	char *config = t_fmt("%s/config.json", dir);
	size_t n;
	uint8_t *text = t_file_read(json, &n);
	struct job j = {
		.name = name, .json = cJSON_ParseWithLength((char *)text, n), .work = t_dir_new(),
	};
	int bad;

	j.ckpt = t_fmt("%s/ckpt", dir);
	if (!j.json)
		t_die("%s is no JSON", json);
	if (is_megatron(&j)) {
		j.option = "--model-config";
		j.value = config;
	}
	if (has_flag(&j, "refuse")) {
		check_refused(&j);
	} else if (t_st_open(&j.truth, truth) < 0) {
		t_say(&j.r, "%s", j.truth.err);
	} else {
		check_good(&j, dir);
		t_st_close(&j.truth);
	}
	if (!j.r.bad && !j.r.equal)
		t_say(&j.r, "nothing was compared");
	bad = j.r.bad != 0;
	if (bad)
		printf("FAIL %s\n%s", name, j.r.text);
	else if (has_flag(&j, "refuse"))
		printf("ok   %s (refused)\n", name);
	else
		printf("ok   %s: %ld equal, %ld left out\n", name, j.r.equal, j.left_out);
	t_dir_remove(j.work);
	cJSON_Delete(j.json);
	free(text);
	free(json);
	free(truth);
	free(config);
	free(j.ckpt);
	free(j.work);
	free(j.r.text);
	return bad;
}

int main(int argc, char **argv)
{
	return t_each_case("parallel", argc < 2 ? NULL : argv[1], test_case);
}
