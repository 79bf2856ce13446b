/* Where a tortured verb works: its folders and its source.  See t_verbs.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/t_dir.h"
#include "tests/lib/t_verbs.h"

#define Z1 "ds0.19.8-z1-bf16-w2-lora"
#define Z3 "ds0.19.8-z3-bf16-w2-lora"
#define UNI "universal"
#define NATIVE "native"
#define WEIGHTS "weights"
#define DEFLATED "deflated"

static int open_path(const char *path, uint32_t threads, struct ckpt **ck, struct ckpt_err *err)
{
	const struct ckpt_open_opts o = { .size = sizeof(o), .threads = threads };

	return ckpt_open(&path, 1, &o, ck, err);
}

static void must(int rc, const struct ckpt_err *err)
{
	if (rc)
		t_die("a torture cannot be prepared: %s: %s", err->where, err->msg);
}

static void put_tokenizer(const char *dir)
{
	static const char text[] = "{\"a file\": \"beside the step\"}";
	char *path = t_fmt("%s/tokenizer.json", dir);

	t_file_write(path, text, sizeof(text) - 1);
	free(path);
}

static char *fixture(const char *name)
{
	const char *root = getenv("ZCKPT_FIXTURES");

	return t_fmt("%s/%s", root && *root ? root : "build/fixtures", name);
}

static void make_form(const struct t_vscene *s, const char *from, int form)
{
	const struct ckpt_reshard_opts o = {
		.size = sizeof(o), .stage = -1, .round_robin = -1, .to = form,
	};
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	must(open_path(from, 1, &ck, &err), &err);
	must(ckpt_reshard(ck, s->src, &o, NULL, &err), &err);
	ckpt_close(ck);
}

/* Weights, and the order of the parameters. */
static void make_weights(const struct t_vscene *s, const char *from)
{
	const struct ckpt_select sel = {
		.size = sizeof(sel), .only = CKPT_ONLY_TRAINABLE, .tied = CKPT_TIED_DROP,
	};
	const struct ckpt_convert_opts o = {
		.size = sizeof(o), .select = &sel, .dtype = CKPT_KEEP,
	};
	struct ckpt_tensor_info t;
	struct ckpt_err err = { 0 };
	char *order = t_fmt("%s", "");
	struct ckpt *ck;

	must(open_path(from, 1, &ck, &err), &err);
	must(ckpt_convert(ck, s->src, &o, NULL, &err), &err);
	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++) {
		char *more = order;

		if (t.role != CKPT_ROLE_TRAINABLE)
			continue;
		order = t_fmt("%s%s\n", more, t.name);
		free(more);
	}
	ckpt_close(ck);
	t_file_write(s->order, order, strlen(order));
	free(order);
}

static void make_source(const struct t_vscene *s)
{
	const char *source = s->verb->source;
	char *from;

	if (!strcmp(source, UNI))
		from = fixture("deepspeed/" Z1 "/ckpt");
	else if (!strcmp(source, WEIGHTS) || !strcmp(source, NATIVE))
		from = fixture("deepspeed/" Z3 "/ckpt");
	else if (!strcmp(source, DEFLATED))
		from = fixture("formats/zip/deflate-all.pt");
	else {
		char *name = t_fmt("deepspeed/%s/ckpt", source);

		from = fixture(name);
		free(name);
	}
	if (!strcmp(source, UNI)) {
		make_form(s, from, CKPT_TO_UNIVERSAL);
	} else if (!strcmp(source, NATIVE)) {
		make_form(s, from, CKPT_TO_NATIVE);
	} else if (!strcmp(source, WEIGHTS)) {
		make_weights(s, from);
	} else {
		t_dir_copy(from, s->src);
		if (t_is_dir(s->src))	/* goes along with a step */
			put_tokenizer(s->src);
	}
	free(from);
}

void t_vscene_open(struct t_vscene *s, const struct t_verb *verb)
{
	const char *dot = strcmp(verb->source, DEFLATED) ? "" : ".pt";

	*s = (struct t_vscene){ .verb = verb, .threads = 1 };
	s->dir = t_dir_new();
	s->src = t_fmt("%s/src%s", s->dir, dot);
	s->order = t_fmt("%s/order", s->dir);
	s->out = t_fmt("%s/out", s->dir);
	s->dst = t_fmt("%s/%s", s->out, verb->dst);
	make_source(s);
	t_dir_make(s->out);
	if (verb->prepare)
		verb->prepare(s);
}

void t_vscene_close(struct t_vscene *s)
{
	t_dir_end(s->dir);
	free(s->src);
	free(s->order);
	free(s->out);
	free(s->dst);
	*s = (struct t_vscene){ 0 };
}
