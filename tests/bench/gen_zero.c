/*
 * gen_zero.c - writes checkpoint folders of ZeRO stage 2 or 3 as DeepSpeed
 * 0.19.8 with torch 2.11 does: the same files, keys, objects and member
 * order, for a Llama of any size and any number of ranks. Master weights are
 * random, the 16-bit weights are the masters rounded, Adam's moments are
 * random or holes. With --sparse every tensor is a hole, so a checkpoint of
 * terabytes takes a few megabytes. --truth writes what a right conversion to
 * fp32 gives, from the same numbers and not from the files.
 *
 * Layout. Stage 2: a group's parameters one after the other, padded to a
 * multiple of 2 * world, cut into world equal parts; moments keep the padding,
 * masters leave it out. Stage 3: every parameter is cut into world pieces of
 * ceil(n / world); a rank's flat tensor is its pieces in order, split into
 * sub-groups when their sum reaches sub_group_size.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>

#include "tests/bench/gen_states.h"
#include "tests/bench/gen_check.h"
#include "tests/bench/gen_optim.h"

/* ---- files ------------------------------------------------------------- */

static int write_members(struct file *f, struct zw *z)
{
	static const char id[] = "0123456789012345678990123456789012345678";
	char name[32];
	uint64_t head, size;
	uint32_t crc;

	zw_member(z, "data.pkl", f->k.b, f->k.n);
	zw_member(z, ".format_version", "1", 1);
	zw_member(z, ".storage_alignment", "64", 2);
	zw_member(z, "byteorder", "little", 6);
	for (size_t i = 0; i < f->n_st; i++) {
		size = f->st[i].n * f->st[i].width;
		snprintf(name, sizeof name, "data/%zu", i);
		zw_begin(z, name, size, &head);
		crc = put_storage(z, f->m, &f->st[i]);
		zw_end(z, name, head, size, crc);
	}
	zw_member(z, "version", "3\n", 2);
	zw_member(z, ".data/serialization_id", id, 40);
	return zw_close(z);
}

static int write_file(const struct run *r, const char *stem, unsigned rank,
		      void (*put)(struct file *, const struct run *))
{
	struct file f = { .o = &r->o, .m = &r->m, .rank = rank };
	struct zw z;
	char path[4096];
	int rc = -1;

	snprintf(path, sizeof path, "%s/" TAG "/%s.pt", r->o.dir, stem);
	pk_start(&f.k);
	put(&f, r);
	pk_op(&f.k, '.');
	if (!zw_open(&z, path, stem))
		rc = write_members(&f, &z);
	if (rc)
		fprintf(stderr, "gen_zero: %s: %s\n", path, strerror(z.bad));
	for (size_t i = 0; i < f.n_st; i++)
		free(f.st[i].s);
	free(f.st);
	pk_free(&f.k);
	return rc;
}

/* A safetensors file of every tensor in fp32, straight from the numbers. */
static int write_truth(const struct run *r)
{
	struct zw z = { 0 };	/* its buffered writing only */
	struct pk h = { 0 };
	uint64_t off = 0;
	char line[256];

	if (zw_open(&z, r->o.truth, ""))
		goto out;
	for (size_t i = 0; i < r->m.np; i++) {
		const struct gen_param *p = &r->m.p[i];
		char dim[48];

		snprintf(dim, sizeof dim, p->nd == 2 ? "%llu,%llu" : "%llu",
			 (unsigned long long)p->shape[0],
			 (unsigned long long)p->shape[1]);
		pk_raw(&h, line, (size_t)snprintf(line, sizeof line,
			"%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],"
			"\"data_offsets\":[%llu,%llu]}", i ? "," : "{", p->name,
			dim, (unsigned long long)off,
			(unsigned long long)(off + 4 * p->n)));
		off += 4 * p->n;
	}
	pk_op(&h, '}');
	while (h.n % 8)
		pk_op(&h, ' ');
	for (int i = 0; i < 8; i++)
		pk_le(&z.dir, h.n >> 8 * i & 255, 1);
	zw_raw(&z, z.dir.b, 8);
	zw_raw(&z, h.b, h.n);
	for (size_t i = 0; i < r->m.np && !z.bad; i++) {
		const struct gen_param *p = &r->m.p[i];
		struct seg g = { (int64_t)p->base, p->n };
		struct storage s = { &g, 1, p->n, 4, p->group < 0 ? GEN_BUFFER :
				     GEN_MASTER, r->o.sparse ? FILL_HOLE :
				     FILL_DATA, 0 };

		put_storage(&z, &r->m, &s);
	}
	zw_flush(&z);
	if (ftruncate(z.fd, (off_t)z.off) && !z.bad)
		z.bad = errno;
	if (close(z.fd) && !z.bad)
		z.bad = errno;
out:
	if (z.bad)
		fprintf(stderr, "gen_zero: %s: %s\n", r->o.truth, strerror(z.bad));
	pk_free(&h);
	pk_free(&z.dir);
	free(z.buf);
	return z.bad ? -1 : 0;
}

/* Jobs: the truth, the model files, then the optimizer shards. */
static int do_job(const struct run *r, unsigned job)
{
	unsigned models = r->o.stage == 3 ? r->o.world : 1;
	char stem[64];

	if (r->o.truth && !job--)
		return write_truth(r);
	if (job >= models) {
		job -= models;
		snprintf(stem, sizeof stem,
			 "bf16_zero_pp_rank_%u_mp_rank_00_optim_states", job);
		return write_file(r, stem, job, put_optim_file);
	}
	if (r->o.stage == 3)
		snprintf(stem, sizeof stem,
			 "zero_pp_rank_%u_mp_rank_00_model_states", job);
	else
		snprintf(stem, sizeof stem, "mp_rank_00_model_states");
	return write_file(r, stem, job, put_model_file);
}

static void *worker(void *arg)
{
	struct run *r = arg;
	unsigned job;

	while (!r->failed && (job = atomic_fetch_add(&r->next, 1)) < r->jobs)
		if (do_job(r, job))
			r->failed = 1;
	return NULL;
}

/* The jobs, by as many threads as wanted. */
static void make_files(struct run *r)
{
	pthread_t th[256];
	unsigned started = 1;

	r->jobs = r->o.world + (r->o.stage == 3 ? r->o.world : 1) + !!r->o.truth;
	while (started < r->o.threads &&
	       !pthread_create(&th[started], NULL, worker, r))
		started++;
	worker(r);
	while (--started)
		pthread_join(th[started], NULL);
}

static void split_sub_groups(struct run *r)
{
	size_t at[2] = { 0, 0 };

	for (int g = 0; g < 2; g++)
		r->list[g] = gen_alloc(NULL, r->m.count[g] * sizeof *r->list[g]);
	for (size_t i = 0; i < r->m.np; i++)
		if (r->m.p[i].group >= 0)
			r->list[r->m.p[i].group][at[r->m.p[i].group]++] = &r->m.p[i];
	r->sub = gen_alloc(NULL, r->m.np * sizeof *r->sub);
	for (int g = 0; g < 2; g++) {
		uint64_t sum = 0;
		size_t first = 0;

		for (size_t i = 0; i < r->m.count[g]; i++) {
			sum += ceil_div(r->list[g][i]->n, r->o.world);
			if (sum < r->o.sub_group && i + 1 < r->m.count[g])
				continue;
			r->sub[r->n_sub++] = (struct sub){ g, first, i + 1 };
			first = i + 1;
			sum = 0;
		}
	}
}

static int make_folder(const struct opts *o)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s/" TAG, o->dir);
	if ((mkdir(o->dir, 0755) && errno != EEXIST) ||
	    (mkdir(path, 0755) && errno != EEXIST))
		goto fail;
	snprintf(path, sizeof path, "%s/latest", o->dir);
	f = fopen(path, "w");
	if (!f)
		goto fail;
	if (fputs(TAG, f) == EOF || fclose(f))
		goto fail;
	return 0;
fail:
	fprintf(stderr, "gen_zero: %s: %s\n", path, strerror(errno));
	return -1;
}

static const char usage[] =
"gen_zero [options] DIR: writes a DeepSpeed checkpoint of random values\n"
"  --model NAME         llama-tiny, -0.2b, -0.8b, -7b, -16b, -70b, -405b\n"
"  --params BYTES       a model whose fp32 weights take about BYTES (k M G)\n"
"  --hidden N --layers N --vocab N --ffn N --kv N\n"
"  --world N            ranks, 8 if not said\n"
"  --stage 2|3          2 if not said\n"
"  --sub-group-size N   stage 3, 1000000000 if not said\n"
"  --sparse             every tensor is a hole\n"
"  --no-moments-data    exp_avg and exp_avg_sq are holes\n"
"  --pad-nan            stage 3 masters are padded with NaN instead of 0\n"
"  --truth FILE         what a conversion to fp32 must give, as safetensors\n"
"  --check FILE         write nothing; exit 0 if the safetensors FILE holds\n"
"                       every tensor in F32 or BF16 bit for bit, else 1\n"
"  --check-state NAME   master (also rounded to BF16), exp_avg, exp_avg_sq\n"
"  --seed N --threads N -q\n";

static uint64_t number(const char *s)
{
	char *end = NULL;
	double v = s ? strtod(s, &end) : -1;

	if (end && *end)
		v *= *end == 'k' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : -1;
	if (v < 0 || v > 1e15) {
		fprintf(stderr, "gen_zero: not a number: %s\n%s", s ? s : "", usage);
		exit(2);
	}
	return (uint64_t)v;
}

static struct gen_dims preset(const char *name)
{
	for (size_t i = 0; name && i < GEN_PRESETS; i++)
		if (!strcmp(name, gen_presets[i].name))
			return gen_presets[i];
	fprintf(stderr, "gen_zero: no such model\n%s", usage);
	exit(2);
}

static enum gen_state state_named(const char *s)
{
	static const char *const name[] = { "master", "exp_avg", "exp_avg_sq" };

	for (int i = 0; i < 3; i++)
		if (!strcmp(s, name[i]))
			return (enum gen_state)i;
	fprintf(stderr, "gen_zero: no such state: %s\n%s", s, usage);
	exit(2);
}

/* Sets the number that option a names; returns 0 if it names none. */
static int number_option(struct opts *o, const char *a, const char *v)
{
	const struct { const char *name; uint64_t *to; unsigned *to32; } t[] = {
		{ "--hidden", &o->dims.hidden, NULL },
		{ "--layers", &o->dims.layers, NULL },
		{ "--vocab", &o->dims.vocab, NULL },
		{ "--ffn", &o->dims.ffn, NULL },
		{ "--kv", &o->dims.kv, NULL },
		{ "--sub-group-size", &o->sub_group, NULL },
		{ "--seed", &o->seed, NULL },
		{ "--world", NULL, &o->world },
		{ "--stage", NULL, &o->stage },
		{ "--threads", NULL, &o->threads },
	};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		if (strcmp(a, t[i].name))
			continue;
		if (t[i].to)
			*t[i].to = number(v);
		else
			*t[i].to32 = (unsigned)number(v);
		return 1;
	}
	return 0;
}

static void parse(struct opts *o, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i], *v = argv[i + 1];

		if (!strcmp(a, "--sparse"))
			o->sparse = 1;
		else if (!strcmp(a, "--no-moments-data"))
			o->moment_holes = 1;
		else if (!strcmp(a, "--pad-nan"))
			o->pad_nan = 1;
		else if (!strcmp(a, "-q"))
			o->quiet = 1;
		else if (!strcmp(a, "--model"))
			o->dims = preset(argv[++i]);
		else if (!strcmp(a, "--params"))
			o->dims = gen_dims_for(number(argv[++i]));
		else if (!strcmp(a, "--truth") && v)
			o->truth = argv[++i];
		else if (!strcmp(a, "--check") && v)
			o->check = argv[++i];
		else if (!strcmp(a, "--check-state") && v)
			o->check_state = state_named(argv[++i]);
		else if (number_option(o, a, v))
			i++;
		else if (*a != '-' && !o->dir)
			o->dir = a;
		else
			o->world = 0;
	}
	if (!o->dir == !o->check || !o->world || o->stage < 2 || o->stage > 3 ||
	    !o->threads || o->threads > 256 || !o->sub_group ||
	    !o->dims.hidden || !o->dims.vocab || !o->dims.layers ||
	    !o->dims.ffn || !o->dims.kv) {
		fputs(usage, stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static struct run r = { .o = { .world = 8, .stage = 2, .threads = 2,
				       .sub_group = 1000000000, .seed = 1 } };
	int rc = 0;

	r.o.dims = gen_presets[0];
	parse(&r.o, argc, argv);
	gen_model_make(&r.m, &r.o.dims, r.o.seed);
	split_sub_groups(&r);
	if (r.o.check)
		rc = check_file(&r, r.o.check, r.o.check_state);
	else if (make_folder(&r.o))
		rc = 3;
	else
		make_files(&r);
	if (!r.o.quiet && !r.o.check && !rc)
		printf("%zu tensors, %llu parameters, %llu bytes in fp32, "
		       "%zu sub-groups\n", r.m.np,
		       (unsigned long long)(r.m.total[0] + r.m.total[1]),
		       (unsigned long long)(4 * (r.m.total[0] + r.m.total[1])),
		       r.n_sub);
	free(r.sub);
	free(r.list[0]);
	free(r.list[1]);
	free(r.m.p);
	return r.failed ? 3 : rc;
}
