/* ztrain.c -- the program: trains what a DeepSpeed or accelerate configuration says. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/comm/en_comm_mpi.h"
#include "engine/data/en_data.h"
#include "engine/main/zt_args.h"
#include "engine/run/en_run.h"

#define JOB_NAME 64
#define TAG_NAME 256

static volatile int stop_now;

struct program {
	struct zt_args args;
	struct en_comm *comm;
	struct en_model *model;
	struct en_config config;
	struct en_source *source;
	struct en_data data;
	char job[JOB_NAME];
	char tag[TAG_NAME];	/* of the step to go on from, "" = none */
	const char *from;
};

static void on_term(int sig)
{
	(void)sig;
	stop_now = 1;
}

/* One rank speaks for all that fail alike. */
static int fail(const struct program *p, const struct ckpt_err *err)
{
	if (!p->comm || !p->comm->rank || err->code == CKPT_E_IO)
		fprintf(stderr, "ztrain: %s%s%s%s\n", err->where, *err->where ? ": " : "",
			err->msg, *err->msg ? "" : ckpt_code_name(err->code));
	return 1;
}

/* ---- ranks ---- */

static int join_ranks(struct program *p, struct ckpt_err *err)
{
	int32_t rank;
	const uint32_t n = en_comm_launched(&rank);
	int rc;

	if (n <= 1 && !(rank >= 0 && en_comm_mpi_is_built()))
		rc = en_comm_local_open(&p->comm, err);
	else
		rc = en_comm_mpi_open(p->args.timeout_s * 1000, &p->comm, err);
	if (!rc)
		p->comm->timeout_ms = p->args.timeout_s * 1000;
	return rc;
}

/* All ranks call the job the same, and no other job so. */
static int name_job(struct program *p, struct ckpt_err *err)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(p->job, sizeof(p->job), "ztrain %lld.%09ld %ld", (long long)t.tv_sec, t.tv_nsec,
		 (long)getpid());
	return en_comm_broadcast(p->comm, p->job, sizeof(p->job), 0, NULL, err);
}

/* ---- model and configuration ---- */

static int open_model(struct program *p, struct ckpt_err *err)
{
	struct en_model_config config;
	struct stat st;
	char path[4096];
	int rc;

	snprintf(path, sizeof(path), "%s", p->args.model);
	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		snprintf(path, sizeof(path), "%s/config.json", p->args.model);
	rc = en_model_config_read(path, &config, err);
	return rc ? rc : en_model_new(&config, &p->model, err);
}

static bool is_yaml(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

static int read_config(struct program *p, struct ckpt_err *err)
{
	static const char bare[] = "{\"train_micro_batch_size_per_gpu\": \"auto\", "
				   "\"gradient_accumulation_steps\": \"auto\"}";
	struct en_facts facts = {
		.world = p->comm->size, .filler = EN_FILL_TRAINER,
		.hidden_size = p->model->config.hidden, .steps = (uint64_t)p->args.steps,
		.micro_batch = p->args.micro_batch, .accumulation = p->args.accumulation,
		.lr = p->args.lr, .has = EN_HAS_STEPS,
	};
	int rc;

	if (!p->args.config) {
		facts.micro_batch = facts.micro_batch ? facts.micro_batch : 1;
		facts.accumulation = facts.accumulation ? facts.accumulation : 1;
		facts.lr = isnan(facts.lr) ? 1e-3 : facts.lr;
	}
	facts.has |= facts.micro_batch ? EN_HAS_MICRO : 0;
	facts.has |= facts.accumulation ? EN_HAS_ACCUMULATION : 0;
	facts.has |= isnan(facts.lr) ? 0 : EN_HAS_LR;
	if (!p->args.config)
		rc = en_config_parse_deepspeed(&p->config, bare, sizeof(bare) - 1, "(no --config)",
					       err);
	else if (is_yaml(p->args.config))
		rc = en_config_read_accelerate(&p->config, p->args.config, p->comm->size, err);
	else
		rc = en_config_read_deepspeed(&p->config, p->args.config, err);
	return rc ? rc : en_config_resolve(&p->config, &facts, err);
}

static void show_config(struct program *p)
{
	const char *const *line;
	size_t n;

	if (p->comm->rank || p->args.quiet ||
	    en_config_screen(&p->config, 0, &line, &n, NULL))
		return;
	for (size_t i = 0; i < n; i++)
		puts(line[i]);
}

/* ---- tokens ---- */

static int open_data(struct program *p, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	const struct en_settings *set = &p->config.set;
	const struct en_source_opts so = {
		.kind = a->data ? 0 : EN_SOURCE_SYNTHETIC, .vocab = p->model->config.vocab,
		.tokens = a->seq, .rows = (uint64_t)1 << 40, .seed = a->seed,
	};
	const struct en_samples_opts order = {
		.order = a->data && a->shuffle ? EN_ORDER_SHUFFLED : EN_ORDER_SEQUENTIAL,
		.seed = a->seed, .micro = (uint64_t)set->micro_batch,
		.accumulation = (uint64_t)set->accumulation, .world = p->comm->size,
	};
	int rc = en_source_open(&p->source, a->data ? a->data : "synthetic", &so, err);

	return rc ? rc : en_data_init(&p->data, p->source, 0, 0, &order, err);
}

static int take_rows(void *arg, uint64_t start, uint64_t unit, int32_t *ids, int32_t *labels,
		     struct ckpt_err *err)
{
	struct program *p = arg;
	struct en_unit u;

	return en_data_rows(&p->data, start, unit, ids, labels, &u, err);
}

static int data_state(void *arg, uint64_t samples, struct ck_buf *buf, struct ckpt_err *err)
{
	struct program *p = arg;

	return en_data_state(&p->data, samples, buf, err);
}

static int data_resume(void *arg, const char *state, uint64_t len, uint64_t *samples_out,
		       struct ckpt_err *err)
{
	struct program *p = arg;

	return en_data_resume(&p->data, state, len, samples_out, err);
}

/* ---- where to begin ---- */

static bool has_weights(const char *path)
{
	static const char *const name[] = {
		"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
		"pytorch_model.bin.index.json",
	};
	char file[4096];

	for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
		snprintf(file, sizeof(file), "%s/%s", path, name[i]);
		if (!access(file, R_OK))
			return true;
	}
	return false;
}

/* Rank 0 looks, all begin there. */
static int find_beginning(struct program *p, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	const bool newest = a->resume && !strcmp(a->resume, "auto");
	const char *root = newest ? a->save : a->resume;
	char *tag = NULL;
	int rc = 0;

	if (root && !p->comm->rank)
		rc = en_keep_find(root, &tag, err);
	if (tag)
		snprintf(p->tag, sizeof(p->tag), "%s", tag);
	free(tag);
	if (rc)
		return rc;
	rc = en_comm_broadcast(p->comm, p->tag, sizeof(p->tag), 0, NULL, err);
	if (!rc && p->tag[0])
		p->from = root;
	else if (!rc && root && !newest)
		p->from = root;		/* a step itself, or weights: it is opened as it is */
	else if (!rc && !a->random && has_weights(a->model))
		p->from = a->model;
	return rc;
}

/* ---- the run ---- */

static void tell_step(void *arg, const struct en_step_told *s)
{
	const struct program *p = arg;

	if (p->comm->rank || p->args.quiet)
		return;
	printf(p->args.exact ? "step %lld  loss %.17g  lr %.17g  norm %.17g" :
			       "step %lld  loss %.6f  lr %.4g  norm %.4g",
	       (long long)s->at.steps, s->loss, s->lr, s->grad_norm);
	if (s->loss_scale != 1 || s->skipped)
		printf("  scale %.6g%s", s->loss_scale, s->skipped ? "  skipped" : "");
	if (!p->args.exact)
		printf("  %.0f tokens/s", (double)s->tokens / s->seconds);
	putchar('\n');
	fflush(stdout);
}

static void tell_counters(const struct program *p, const struct en_mem *mem)
{
	const struct en_comm *c = p->comm;

	for (uint32_t k = 0; k < EN_COMM_KINDS; k++)
		if (c->counter[k].calls)
			printf("rank %u  sent  %-14s %llu bytes in %llu messages\n", c->rank,
			       en_comm_kind_name((enum en_comm_kind)k),
			       (unsigned long long)c->counter[k].sent,
			       (unsigned long long)c->counter[k].messages);
	for (uint32_t k = 0; k < EN_MEM_KINDS; k++)
		printf("rank %u  held  %-14s %llu bytes\n", c->rank,
		       en_mem_name((enum en_mem_kind)k), (unsigned long long)mem->peak[k]);
}

static void tell_end(const struct program *p, const struct en_ran *ran)
{
	if (!p->comm->rank && !p->args.quiet) {
		if (ran->resumed)
			printf("resumed at step %lld from %s/%s, %llu bytes read by rank 0\n",
			       (long long)ran->first_step, p->from, p->tag,
			       (unsigned long long)ran->read_bytes);
		if (ran->saves)
			printf("%llu saves took %.3f s from the steps\n",
			       (unsigned long long)ran->saves, ran->save_seconds);
		if (ran->stopped)
			printf("stopped by a signal after step %lld, saved\n",
			       (long long)ran->at.steps);
	}
	if (p->args.counters)
		tell_counters(p, &ran->mem);
}

static int run(struct program *p, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	const struct en_run_opts o = {
		.model = p->model, .comm = p->comm, .set = &p->config.set,
		.version = p->config.version, .feed = { p, take_rows, data_state, data_resume },
		.tokens = p->data.info.tokens,
		.threads = a->threads, .recompute = a->recompute, .seed = a->seed,
		.steps = a->steps, .stop_at = a->stop_at, .save_root = a->save, .job = p->job,
		.save_to = a->save_to, .save_every = a->save_every, .sync = a->sync,
		.stop = a->save ? &stop_now : NULL,
		.from = p->from, .from_tag = p->tag[0] ? p->tag : NULL, .told = tell_step,
		.told_arg = p,
	};
	struct en_ran ran;
	int rc = en_run(&o, &ran, err);

	if (!rc)
		tell_end(p, &ran);
	return rc;
}

/* Now, not when the first save is due. */
static int make_root(const struct program *p, struct ckpt_err *err)
{
	char path[4096];

	if (!p->args.save || p->comm->rank)
		return 0;
	snprintf(path, sizeof(path), "%s/", p->args.save);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(path, 0777) && errno != EEXIST) {
			err->code = CKPT_E_IO;
			snprintf(err->where, sizeof(err->where), "%.300s", path);
			snprintf(err->msg, sizeof(err->msg), "mkdir failed: %s", strerror(errno));
			return -CKPT_E_IO;
		}
		*slash = '/';
	}
	return 0;
}

static int begin(struct program *p, struct ckpt_err *err)
{
	int rc = join_ranks(p, err);

	if (!rc)
		rc = open_model(p, err);
	if (!rc) {
		rc = read_config(p, err);
		show_config(p);
	}
	if (!rc)
		rc = open_data(p, err);
	if (!rc)
		rc = make_root(p, err);
	if (!rc)
		rc = name_job(p, err);
	return rc ? rc : find_beginning(p, err);
}

int main(int argc, char **argv)
{
	struct program p = { .from = NULL };
	struct sigaction act = { .sa_handler = on_term, .sa_flags = SA_RESTART };
	struct ckpt_err err = { 0 };
	int rc = zt_args_parse(argc, argv, &p.args);

	if (rc)
		return rc == 1 ? 0 : rc;
	sigaction(SIGTERM, &act, NULL);
	en_config_init(&p.config, EN_DS_0_19);
	rc = begin(&p, &err);
	if (!rc)
		rc = run(&p, &err);
	if (rc) {
		rc = fail(&p, &err);
		fflush(stdout);
		if (p.comm)
			en_comm_abort(p.comm, 1);
		return rc;
	}
	en_data_release(&p.data);
	en_source_close(p.source);
	en_config_release(&p.config);
	en_model_free(p.model);
	if (en_comm_close(p.comm, &err)) {
		fail(&p, &err);
		en_comm_abort(p.comm, 1);
	}
	return 0;
}
