/* Where a tortured verb works: its folders and its source.  See t_verbs.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_load.h"
#include "tests/lib/ops/t_step.h"
#include "tests/lib/torture/t_verbs.h"

#define Z1 "ds0.19.8-z1-bf16-w2-lora"
#define Z3 "ds0.19.8-z3-bf16-w2-lora"
#define UNI "universal"
#define NATIVE "native"
#define WEIGHTS "weights"
#define DEFLATED "deflated"

static void put_tokenizer(const char *dir)
{
	static const char text[] = "{\"a file\": \"beside the step\"}";
	char *path = t_fmt("%s/tokenizer.json", dir);

	t_file_write(path, text, sizeof(text) - 1);
	free(path);
}

static void make_source(const struct t_vscene *s)
{
	const char *source = s->verb->source;
	char *from;

	if (!strcmp(source, UNI))
		from = t_fixture("deepspeed/" Z1 "/ckpt");
	else if (!strcmp(source, WEIGHTS) || !strcmp(source, NATIVE))
		from = t_fixture("deepspeed/" Z3 "/ckpt");
	else if (!strcmp(source, DEFLATED))
		from = t_fixture("formats/zip/deflate-all.pt");
	else {
		char *name = t_fmt("deepspeed/%s/ckpt", source);

		from = t_fixture(name);
		free(name);
	}
	if (!strcmp(source, UNI)) {
		t_load_reshard(from, s->src, CKPT_TO_UNIVERSAL, 0);
	} else if (!strcmp(source, NATIVE)) {
		t_load_reshard(from, s->src, CKPT_TO_NATIVE, 0);
	} else if (!strcmp(source, WEIGHTS)) {
		t_step_weights(from, s->src, 0);
		t_step_order(from, s->order);
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
