/*
 * Tables of names for Megatron-Core: what a table may say, which tensors and rows it makes of a
 * model's, and what contradicts it.  If it is wrong, a converted model has its heads or experts
 * mixed up, rows of padding in its vocabulary, or the configuration of another model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/mg_apply.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/io/ck_fs.h"
#include "tests/lib/fs/t_dir.h"

#define MOST 8

static const char qkv[] = "size L n\nsize H hidden\nsize h heads\nsize G kv = h\n"
			  "size D dim = H/h\n"
			  "layers.{L}.qkv [(h + 2*G)*D, H] groups G\n"
			  "\tq.{L} h/G*D\n\tk.{L} D\n\tv.{L} D\n";
static const char moe[] = "size L n\nsize E experts\nsize H hidden\nsize F inter\n"
			  "experts every step except dense from first\n"
			  "layers.{L}.fc1 [2*F, H] dense\n\tg.{L} F\n\tu.{L} F\n"
			  "layers.{L}.e.{E}.fc1 [2*F, H] experts\n\tg.{L}.{E} F\n\tu.{L}.{E} F\n"
			  "layers.{L}.e.{E}.fc1_w [F, H] experts\n\tg.{L}.{E}\n"
			  "layers.{L}.e.{E}.fc1_v [F, H] experts\n\tu.{L}.{E}\n";
static const char head[] = "size H hidden\nflag tied tie = no\nmodel.norm [H]\n\tnorm\n"
			   "model.out [2, H] unless tied\n\thead\n";

struct job {
	struct mg_native native[MOST];
	uint64_t shape[MOST][4], n;
	struct ck_buf text;
	struct ckpt_err err;
	int rc;
};

static void add_numbers(struct ck_buf *b, const uint64_t *n, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		ck_buf_addf(b, NULL, "%s%" PRIu64, i ? "," : "", n[i]);
}

/* "NAME[shape] offset+size offset+size;" */
static int take_made(void *arg, const struct mg_made *m, struct ckpt_err *err)
{
	struct job *j = arg;
	const uint32_t ndim = j->native[m->native].ndim;

	(void)err;
	ck_buf_addf(&j->text, NULL, "%s[", m->name);
	add_numbers(&j->text, m->shape, m->ndim);
	ck_buf_adds(&j->text, "]", NULL);
	for (uint64_t i = 0; i < m->nboxes; i++) {
		ck_buf_adds(&j->text, " ", NULL);
		add_numbers(&j->text, m->box + 2 * i * ndim, ndim);
		ck_buf_adds(&j->text, "+", NULL);
		add_numbers(&j->text, m->box + (2 * i + 1) * ndim, ndim);
	}
	return ck_buf_adds(&j->text, ";", NULL);
}

/* "key 2 3; key 4" */
static void read_natives(struct job *j, char *text)
{
	char *save, *save2;

	for (char *one = strtok_r(text, ";", &save); one; one = strtok_r(NULL, ";", &save)) {
		struct mg_native *t = &j->native[j->n];

		t->key = strtok_r(one, " ", &save2);
		t->shape = j->shape[j->n++];
		for (char *d; (d = strtok_r(NULL, " ", &save2)) != NULL;)
			j->shape[j->n - 1][t->ndim++] = strtoull(d, NULL, 10);
	}
}

static void read_config(struct mg_config *c, const char *json)
{
	struct ckpt_limits limits;
	char *dir = t_dir_new(), *path = ck_fs_join(dir, "config.json");

	ck_limits_fill(NULL, &limits);
	t_file_write(path, json, strlen(json));
	assert_int_equal(ck_mg_config_read(c, dir, &limits, NULL), 0);
	t_dir_remove(dir);
	free(dir);
	ck_free(path);
}

static void apply(struct job *j, const char *table, const char *json, const struct ck_val *args,
		  uint64_t v, const char *natives)
{
	const struct mg_taker taker = { j, take_made };
	struct mg_config config = MG_CONFIG_INIT;
	struct mg_sizes sizes = { .where = NULL };
	struct mg_map map;
	char *text = ck_strdup(natives);

	*j = (struct job){ .text = CK_BUF_INIT(1 << 16) };
	read_natives(j, text);
	if (json)
		read_config(&config, json);
	assert_int_equal(ck_mg_map_parse(&map, table, strlen(table), "table", &j->err), 0);
	j->rc = ck_mg_sizes_fill(&sizes, &map, &config, args, v, &j->err);
	if (!j->rc)
		j->rc = ck_mg_apply(&map, &sizes, j->native, j->n, &taker, &j->err);
	ck_mg_sizes_release(&sizes);
	ck_mg_map_release(&map);
	ck_mg_config_release(&config);
	ck_free(text);
}

static void expect(const char *table, const char *json, const char *natives, const char *want)
{
	struct job j;

	apply(&j, table, json, NULL, 0, natives);
	if (j.rc)
		fail_msg("%s: %s", j.err.where, j.err.msg);
	assert_string_equal(j.text.p, want);
	ck_buf_release(&j.text);
}

static void refuse(const char *table, const char *json, const char *natives, const char *why)
{
	struct job j;

	apply(&j, table, json, NULL, 0, natives);
	assert_int_not_equal(j.rc, 0);
	if (!strstr(j.err.msg, why))
		fail_msg("\"%s\" is not in \"%s\"", why, j.err.msg);
	ck_buf_release(&j.text);
}

/* ------------------------------------------------------------------------- tensors */

static void query_key_and_value_are_taken_from_every_group(void **state)
{
	(void)state;
	expect(qkv, "{\"n\":2,\"hidden\":8,\"heads\":4,\"kv\":2,\"dim\":3}", "layers.qkv 2 24 8",
	       "q.0[12,8] 0,0,0+1,6,8 0,12,0+1,6,8;q.1[12,8] 1,0,0+1,6,8 1,12,0+1,6,8;"
	       "k.0[6,8] 0,6,0+1,3,8 0,18,0+1,3,8;k.1[6,8] 1,6,0+1,3,8 1,18,0+1,3,8;"
	       "v.0[6,8] 0,9,0+1,3,8 0,21,0+1,3,8;v.1[6,8] 1,9,0+1,3,8 1,21,0+1,3,8;");
	/* one layer each; defaults: as many groups as heads, and hidden / heads */
	expect(qkv, "{\"n\":1,\"hidden\":4,\"heads\":2}", "layers.0.qkv 12 4",
	       "q.0[4,4] 0,0+2,4 6,0+2,4;k.0[4,4] 2,0+2,4 8,0+2,4;v.0[4,4] 4,0+2,4 10,0+2,4;");
}

static void rows_of_padding_are_cut_and_rows_that_are_missing_refused(void **state)
{
	struct job j;
	static const char cut[] = "size V vocab\nsize H hidden\nmodel.emb [*, H]\n"
				  "\tembed V\n\tcut\n";

	(void)state;
	expect(cut, "{\"vocab\":5,\"hidden\":2}", "model.emb 8 2", "embed[5,2] 0,0+5,2;");
	expect(cut, "{\"vocab\":8,\"hidden\":2}", "model.emb 8 2", "embed[8,2] 0,0+8,2;");
	refuse(cut, "{\"vocab\":9,\"hidden\":2}", "model.emb 8 2", "asks for 9 rows (V)");
	apply(&j, cut, "{\"vocab\":9,\"hidden\":2}", NULL, 3, "model.emb 8 2");
	assert_int_equal(j.rc, 0);
	assert_string_equal(j.text.p, "embed[3,2] 0,0+3,2;");
	ck_buf_release(&j.text);
}

static void experts_are_one_axis_or_one_tensor_each(void **state)
{
	static const char config[] = "{\"n\":2,\"experts\":2,\"hidden\":3,\"inter\":1,"
				     "\"dense\":[0]}";

	(void)state;
	expect(moe, config, "layers.0.fc1 2 3; layers.1.e.fc1 2 2 3",
	       "g.0[1,3] 0,0+1,3;u.0[1,3] 1,0+1,3;"
	       "g.1.0[1,3] 0,0,0+1,1,3;g.1.1[1,3] 1,0,0+1,1,3;"
	       "u.1.0[1,3] 0,1,0+1,1,3;u.1.1[1,3] 1,1,0+1,1,3;");
	expect(moe, config,
	       "layers.0.fc1 2 3; layers.1.e.0.fc1_w 1 3; layers.1.e.0.fc1_v 1 3; "
	       "layers.1.e.1.fc1 2 3",
	       "g.0[1,3] 0,0+1,3;u.0[1,3] 1,0+1,3;g.1.0[1,3] 0,0+1,3;u.1.0[1,3] 0,0+1,3;"
	       "g.1.1[1,3] 0,0+1,3;u.1.1[1,3] 1,0+1,3;");
	/* layers and experts as axes */
	expect(moe, "{\"n\":1,\"experts\":1,\"hidden\":3,\"inter\":1}", "layers.e.fc1 1 1 2 3",
	       "g.0.0[1,3] 0,0,0,0+1,1,1,3;u.0.0[1,3] 0,0,1,0+1,1,1,3;");
}

static void which_layers_have_experts_is_as_the_configuration_says(void **state)
{
	(void)state;
	refuse(moe, "{\"n\":2,\"experts\":1,\"hidden\":3,\"inter\":1,\"step\":2}",
	       "layers.0.e.fc1 1 2 3; layers.1.fc1 2 3", "layer 0 has no experts");
	expect(moe, "{\"n\":2,\"experts\":1,\"hidden\":3,\"inter\":1,\"step\":2}",
	       "layers.0.fc1 2 3; layers.1.e.fc1 1 2 3",
	       "g.0[1,3] 0,0+1,3;u.0[1,3] 1,0+1,3;g.1.0[1,3] 0,0,0+1,1,3;"
	       "u.1.0[1,3] 0,1,0+1,1,3;");
	refuse(moe, "{\"n\":2,\"experts\":1,\"hidden\":3,\"inter\":1,\"first\":1}",
	       "layers.e.fc1 2 1 2 3", "layer 0 has no experts");
}

/* ------------------------------------------------------------------- contradictions */

static void every_tensor_is_made_once(void **state)
{
	static const char config[] = "{\"n\":2,\"experts\":1,\"hidden\":3,\"inter\":1}";

	(void)state;
	refuse(moe, config, "layers.0.e.fc1 1 2 3", "lacks 2 tensors");
	refuse(moe, config, "layers.e.fc1 2 1 2 3; layers.1.e.0.fc1_w 1 3", "two tensors");
	refuse(moe, config, "layers.e.fc1 2 1 2 3; layers.e.bias 2", "no place for this tensor");
	refuse(moe, config, "layers.2.e.fc1 1 2 3", "layer 2 of 2");
	refuse(moe, config, "layers.0.e.1.fc1 2 3", "expert 1 of 1");
	refuse(moe, config, "layers.00.e.0.fc1 2 3", "no place");
	refuse(moe, config, "layers.e.fc1 3 1 2 3",
	       "its shape is [3, 1, 2, 3], and a model of these sizes has [2, 1, 2, 3]");
	refuse(moe, config, "layers.e.fc1 2 2 3", "its shape is");
	refuse(moe, "{\"n\":2,\"experts\":1,\"hidden\":3}", "layers.e.fc1 2 1 2 3",
	       "inter is missing");
	refuse(qkv, "{\"n\":1,\"hidden\":8,\"heads\":3,\"dim\":2,\"kv\":2}", "layers.qkv 1 14 8",
	       "no multiple");
}

static void a_tied_head_is_neither_missing_nor_allowed(void **state)
{
	(void)state;
	expect(head, "{\"hidden\":3,\"tie\":true}", "model.norm 3", "norm[3] 0+3;");
	expect(head, "{\"hidden\":3}", "model.norm 3; model.out 2 3",
	       "norm[3] 0+3;head[2,3] 0,0+2,3;");
	refuse(head, "{\"hidden\":3,\"tie\":true}", "model.norm 3; model.out 2 3", "tie is true");
	refuse(head, "{\"hidden\":3,\"tie\":false}", "model.norm 3", "lacks 1 tensor ");
}

static struct ck_val *text_val(const char *s)
{
	struct ck_val *v = ck_zalloc(sizeof(*v));

	v->kind = CK_VAL_STR;
	v->u.str.p = s;
	v->u.str.len = strlen(s);
	return v;
}

static struct ck_val *number_val(int64_t n)
{
	struct ck_val *v = ck_zalloc(sizeof(*v));

	v->kind = CK_VAL_INT;
	v->u.i = n;
	return v;
}

/* A configuration whose heads have the same shapes as the run's is still another model's. */
static void heads_must_be_those_of_the_run(void **state)
{
	static const char table[] = "size L n\nsize D dim\n"
				    "size h heads | num_attention_heads same\n"
				    "needs swiglu=1\nlayers.{L}.o [h*D]\n\to.{L}\n";
	struct ck_val *item[4] = { text_val("num_attention_heads"), number_val(4),
				   text_val("swiglu"), number_val(1) };
	struct ck_val args = { .kind = CK_VAL_DICT };
	struct job j;

	(void)state;
	args.u.seq.item = item;
	args.u.seq.n = 4;
	apply(&j, table, "{\"n\":1,\"heads\":4,\"dim\":2}", &args, 0, "layers.o 1 8");
	assert_int_equal(j.rc, 0);
	ck_buf_release(&j.text);
	apply(&j, table, "{\"n\":1,\"heads\":2,\"dim\":4}", &args, 0, "layers.o 1 8");
	assert_int_equal(j.rc, -CKPT_E_MISMATCH);
	assert_non_null(strstr(j.err.msg, "heads is 2"));
	ck_buf_release(&j.text);
	item[3]->u.i = 0;
	apply(&j, table, "{\"n\":1,\"heads\":4,\"dim\":2}", &args, 0, "layers.o 1 8");
	assert_int_equal(j.rc, -CKPT_E_UNSUPPORTED);
	ck_buf_release(&j.text);
	for (int i = 0; i < 4; i++)
		ck_free(item[i]);
}

/* ----------------------------------------------------------------------------- text */

static void a_table_that_cannot_be_meant_is_refused_with_its_line(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{ "", "names no tensor" },
		{ "size H a\nx.y [H]\n", "line 3: no part is below" },
		{ "size H a\nx.y [H]\nsize F b\n", "line 3: no part is below" },
		{ "\tx\n", "line 1: no tensor is above" },
		{ "x.y [Q]\n\tz\n", "line 1: no size of this name" },
		{ "x.y [2*]\n\tz\n", "is missing" },
		{ "x.y [(2]\n\tz\n", "bracket" },
		{ "x.y [2\n\tz\n", "closing ]" },
		{ "x.y [1,2,3,4,5]\n\tz\n", "at most 4 axes" },
		{ "x.y [2] sometimes\n\tz\n", "does not take \"sometimes\"" },
		{ "x.y [2] if tied\n\tz\n", "no flag has the name \"tied\"" },
		{ "x.y [2]\n\tz\n\tw 1\n", "line 3: no rows are left" },
		{ "x.y [2]\n\tcut\n\tw 1\n", "line 3: no rows are left" },
		{ "x.{L}.y [2]\n\tz.{L}\n", "no size is declared" },
		{ "size L n\nx.{L}.y [2]\n\tz\n", "must be as in the name above" },
		{ "size L n\nx.{L}{L}.y [2]\n\tz\n", "between dots" },
		{ "x.{M}.y [2]\n\tz\n", "only {L} and {E}" },
		{ "size A a\nsize A b\n", "line 2: two sizes" },
		{ "size A a = B\n", "no size of this name" },
		{ "flag t tie\n", "\"flag\" takes" },
		{ "flag t tie = perhaps\n", "ends with = yes or = no" },
		{ "needs swiglu\n", "ARGUMENT=VALUE" },
		{ "experts often dense\n", "\"experts\" takes" },
		{ "hello\n", "neither a word of a table" },
		{ "x.y [99999999999999999999]\n\tz\n", "too large" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct ckpt_err err = { 0 };
		struct mg_map map;

		assert_int_equal(ck_mg_map_parse(&map, bad[i].text, strlen(bad[i].text), "t", &err),
				 -CKPT_E_FORMAT);
		if (!strstr(err.msg, bad[i].why))
			fail_msg("\"%s\" is not in \"%s\"", bad[i].why, err.msg);
	}
}

static void the_tables_of_the_library_are_tables(void **state)
{
	const char *name, *text;
	size_t n = 0;

	(void)state;
	for (; (text = ck_mg_map_text(n, &name)) != NULL; n++) {
		struct ckpt_err err = { 0 };
		struct mg_map map;

		if (ck_mg_map_parse(&map, text, strlen(text), name, &err))
			fail_msg("%s: %s", name, err.msg);
		assert_true(map.narchitectures);
		assert_true(map.nneeds);
		ck_mg_map_release(&map);
	}
	assert_int_equal(n, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(query_key_and_value_are_taken_from_every_group),
		cmocka_unit_test(rows_of_padding_are_cut_and_rows_that_are_missing_refused),
		cmocka_unit_test(experts_are_one_axis_or_one_tensor_each),
		cmocka_unit_test(which_layers_have_experts_is_as_the_configuration_says),
		cmocka_unit_test(every_tensor_is_made_once),
		cmocka_unit_test(a_tied_head_is_neither_missing_nor_allowed),
		cmocka_unit_test(heads_must_be_those_of_the_run),
		cmocka_unit_test(a_table_that_cannot_be_meant_is_refused_with_its_line),
		cmocka_unit_test(the_tables_of_the_library_are_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
