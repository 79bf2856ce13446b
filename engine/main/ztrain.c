/* ztrain.c -- the program: trains what a DeepSpeed or accelerate configuration says. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/main/zt_bench.h"
#include "engine/main/zt_command.h"
#include "engine/main/zt_complete.h"
#include "engine/main/zt_generate.h"
#include "engine/main/zt_log.h"
#include "engine/main/zt_program.h"
#include "engine/main/zt_report.h"
#include "engine/main/zt_say.h"
#include "tools/shared/cli_term.h"

#define MOST_CONFIG ((size_t)8 << 20)

static volatile int stop_now;

/*
 * The step in work is ended and saved.  A second one ends the process at once, but for one that
 * comes within a second: launchers pass on what their ranks get as well.
 */
static void on_term(int sig)
{
	static struct timespec first;
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	if (!stop_now)
		first = t;
	else if (t.tv_sec - first.tv_sec > 1 ||
		 (t.tv_sec > first.tv_sec && t.tv_nsec >= first.tv_nsec)) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
	stop_now = 1;
}

/*
 * Rank 0 speaks for all ranks that fail in the same way.  Failures of the transport name ranks; to
 * others the lost ranks are added.
 */
static int fail(const struct zt_program *p, const struct ckpt_err *err)
{
	const bool ranks = p->comm && p->comm->size > 1 && !p->comm->broken.code;
	char who[24] = "", lost[360] = "";

	fflush(stdout);
	if (p->comm && p->comm->rank && !p->runs && err->code != CKPT_E_IO)
		return 1;
	if (ranks && p->runs) {
		snprintf(who, sizeof(who), "rank %u: ", p->comm->rank);
		en_comm_lost(p->comm, lost, sizeof(lost));
	}
	zt_say_error("ztrain: ", "%s%s%s%s%s%s%s", who, err->where, *err->where ? ": " : "",
	       err->msg, *err->msg ? "" : ckpt_code_name(err->code),
	       *lost ? "; not responding: " : "", lost);
	if (err->code == CKPT_E_NOSPACE && p->runs && p->args.save)
		zt_say("ztrain: ", "earlier steps are complete: free some space, then run the same "
		       "command with --resume auto");
	return 1;
}

/* ---- ranks ---- */

static void say(const char *line)
{
	zt_say("ztrain: ", "%s", line);
}

/* With the secret that the job has. */
static int join_tcp(struct zt_program *p, struct en_rendezvous *m, uint32_t deadline,
		    struct ckpt_err *err)
{
	struct en_secret *secret = calloc(1, sizeof(*secret));
	int rc = secret ? en_secret_find(p->args.secret_file, m->local, secret, err) :
		 -CKPT_E_NOMEM;

	m->secret = secret;
	m->say = say;
	if (!rc)
		rc = en_comm_tcp_open(m, deadline, &p->comm, err);
	if (secret)
		explicit_bzero(secret, sizeof(*secret));
	free(secret);
	return rc;
}

/* By MPI; where that sees this process alone and the launcher does not, as srun says. */
static int join_mpi(struct zt_program *p, uint32_t deadline, struct ckpt_err *err)
{
	struct en_rendezvous rendezvous;
	int32_t rank;
	int rc = en_comm_mpi_open(deadline, &p->comm, err);

	if (rc || p->comm->size == en_comm_launched(&rank))
		return rc;
	rc = en_bootstrap_without_mpi(p->comm->size, &rendezvous, err);
	if (!rc)
		rc = en_comm_close(p->comm, err);
	if (rc)
		return rc;
	p->comm = NULL;
	return join_tcp(p, &rendezvous, deadline, err);
}

static int join_ranks(struct zt_program *p, struct ckpt_err *err)
{
	const uint32_t deadline = (uint32_t)p->args.timeout_s * 1000;
	struct en_rendezvous rendezvous;
	enum en_bootstrap how;
	int rc = en_bootstrap_detect(en_comm_mpi_is_built(), &how, &rendezvous, err);

	if (rc)
		return rc;
	if (how == EN_BOOT_ALONE)
		rc = en_comm_local_open(&p->comm, err);
	else if (how == EN_BOOT_TCP)
		rc = join_tcp(p, &rendezvous, deadline, err);
	else
		rc = join_mpi(p, deadline, err);
	if (!rc)
		p->comm->timeout_ms = deadline;
	if (!rc && p->args.secret_file && strcmp(p->comm->ops->name, "tcp") && !p->comm->rank)
		fputs("ztrain: --secret-file has no effect: it is for ranks that connect by TCP\n",
		      stderr);
	return rc;
}

/* All ranks call the job the same, and no other job so. */
static int name_job(struct zt_program *p, struct ckpt_err *err)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(p->job, sizeof(p->job), "ztrain %lld.%09ld %ld", (long long)t.tv_sec, t.tv_nsec,
		 (long)getpid());
	return en_comm_broadcast(p->comm, p->job, sizeof(p->job), 0, NULL, err);
}

/* "Qwen/Qwen3-0.6B": a name of the hub. */
static bool is_hub_name(const char *name)
{
	const char *slash = strchr(name, '/');

	return slash && slash != name && slash[1] && !strchr(slash + 1, '/') && *name != '.';
}

/* The path is missing: what is probably meant. */
static int no_model(const char *path, bool is_dir, bool trains, struct ckpt_err *err)
{
	err->code = CKPT_E_NOTFOUND;
	snprintf(err->where, sizeof(err->where), "--model %.280s", path);
	if (is_dir)
		snprintf(err->msg, sizeof(err->msg), "no config.json in this folder; %s", trains ?
			 "a step that ztrain saved is resumed with --resume" :
			 "expected a Hugging Face folder or a config.json");
	else if (is_hub_name(path))
		snprintf(err->msg, sizeof(err->msg), "no such file or folder; to download a model "
			 "of the hub: hf download %.120s --local-dir DIR", path);
	else
		snprintf(err->msg, sizeof(err->msg), "no such file or folder; expected a Hugging "
			 "Face folder or a config.json");
	return -CKPT_E_NOTFOUND;
}

int zt_open_model(struct zt_program *p, struct ckpt_err *err)
{
	const char *model = p->args.model;
	struct en_model_config config;
	struct stat st;
	char path[ZT_PATH];
	bool is_dir = false;
	int rc;

	snprintf(path, sizeof(path), "%s", model);
	if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
		snprintf(path, sizeof(path), "%s/config.json", model);
		is_dir = true;
	}
	rc = en_model_config_read(path, &config, err);
	if (rc == -CKPT_E_NOTFOUND)
		return no_model(model, is_dir, p->args.call == ZT_RUN, err);
	return rc ? rc : zt_adapt_model(p, &config, err);
}

/* ---- where to begin ---- */

static bool has_weights(const char *path)
{
	static const char *const name[] = {
		"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
		"pytorch_model.bin.index.json",
	};
	char file[ZT_PATH];

	for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
		snprintf(file, sizeof(file), "%s/%s", path, name[i]);
		if (!access(file, R_OK))
			return true;
	}
	return false;
}

/* Rank 0 looks, all begin there. */
int zt_find_beginning(struct zt_program *p, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	const bool newest = a->resume && !strcmp(a->resume, "auto");
	int rc = 0;

	p->find = (struct en_find_opts){
		.save = a->save, .from = newest ? a->save : a->resume, .newest = newest,
		.overwrite = a->overwrite, .sync = (enum ckpt_sync)a->sync, .say = say,
	};
	if (a->save && !p->comm->rank)
		rc = en_lock_folder(a->save, &p->lock, err);
	if (!rc && (a->save || a->resume))
		rc = en_find_steps(&p->find, p->comm, &p->found, err);
	if (rc)
		return rc;
	if (p->found.n || (a->resume && !newest))
		p->from = p->find.from;	/* without steps a step itself, or weights */
	else if (!a->random && has_weights(a->model))
		p->from = a->model;
	return 0;
}

/* ---- threads ---- */

/*
 * Unless the call says it: one, or, where the cores do the work of GPUs' optimizer, this rank's
 * share of those that it may run on.  A rank that its launcher has bound shares them with no other.
 */
int zt_choose_threads(struct zt_program *p, struct ckpt_err *err)
{
	struct host {
		char name[64];
	} own = { "" }, *all = NULL;
	int64_t cores, here = 0;
	cpu_set_t set;
	int rc;

	if (p->args.threads)
		return 0;
	p->args.threads = 1;
	if (!p->on_gpu ||
	    (p->config.set.offload_optimizer.device == EN_DEVICE_NONE && !p->args.offload))
		return 0;
	all = calloc(p->comm->size, sizeof(*all));
	if (!all)
		return -CKPT_E_NOMEM;
	gethostname(own.name, sizeof(own.name) - 1);
	rc = en_comm_gather_small(p->comm, all, &own, sizeof(own), NULL, err);
	for (uint32_t i = 0; i < p->comm->size; i++)
		here += !strcmp(all[i].name, own.name);
	free(all);
	cores = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
	if (sysconf(_SC_NPROCESSORS_ONLN) > cores)
		here = 1;
	p->args.threads = rc || cores < here ? 1 : cores / here < 256 ? cores / here : 256;
	return rc;
}

/* ---- the run ---- */

struct en_run_opts zt_run_opts(struct zt_program *p)
{
	const struct zt_args *a = &p->args;
	return (struct en_run_opts){
		.model = p->model, .comm = p->comm, .set = &p->config.set,
		.version = p->config.version, .config_json = p->config_json.p,
		.scheduler = a->scheduler, .scheduler_args = a->scheduler_args,
		.warmup_steps = a->warmup,
		.loader = zt_data_loader(p), .eval_loader = zt_data_eval_loader(p),
		.eval_every = a->eval_every, .keep_best = a->keep_best,
		.patience = a->patience, .save_most = (uint64_t)a->save_most,
		.as_deepspeed = p->as_deepspeed, .cuda = p->on_gpu ? &p->cuda : NULL,
		.token_mean = a->loss == 1,
		.tokens = p->data.info.tokens, .packed = p->data.info.packed,
		.threads = (uint32_t)a->threads, .recompute = a->recompute,
		.seed = (uint64_t)a->seed, .steps = a->steps, .stop_at = a->stop_at,
		.rank_memory = a->log != NULL,
		.save_root = a->save, .save_beside = a->model, .job = p->job, .save_to = a->save_to,
		.save_every = a->save_every, .sync = (enum ckpt_sync)a->sync,
		.save_buffer = a->save_buffer_bytes, .save_threads = (uint32_t)a->save_threads,
		.stop = a->save ? &stop_now : NULL,
		.grace_ms = (uint32_t)a->grace_s * 1000, .from = p->from,
		.stated = p->stated, .unsaid = p->unsaid, .other_model = a->other_model,
		.new_data = a->new_data,
		.weights = has_weights(a->model) ? a->model : NULL, .adapter = a->lora_from,
		.no_frozen = a->no_frozen,
		.owners = {
			a->resume_order, a->resume_frozen.n ? a->resume_frozen.list : NULL,
			a->resume_buffer.n ? a->resume_buffer.list : NULL,
		},
		.find = &p->find, .found = a->save || a->resume ? &p->found : NULL,
		.export = p->export.dir ? &p->export : NULL, .on_start = zt_tell_beginning,
		.on_step = zt_tell_step, .callback_arg = p,
	};
}

static int run(struct zt_program *p, struct ckpt_err *err)
{
	const struct en_run_opts o = zt_run_opts(p);
	struct en_ran ran;
	int rc;

	if (!p->comm->rank && !p->args.quiet)
		zt_wait_begin(&p->wait, "making random weights");
	if (p->from)
		zt_wait_for(&p->wait, "reading %s", p->from);
	rc = en_run(&o, &ran, err);
	zt_wait_end(&p->wait);
	if (!rc)
		zt_tell_end(p, &ran);
	return rc;
}

/* Now, not when the first save is due. */
static int make_root(const struct zt_program *p, struct ckpt_err *err)
{
	char path[ZT_PATH];

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

static int begin(struct zt_program *p, struct ckpt_err *err)
{
	int rc = zt_open_model(p, err);

	if (!rc)
		rc = zt_config_read(p, err);
	if (!rc)
		rc = zt_choose_threads(p, err);
	if (!rc)
		rc = zt_data_open(p, err);
	if (!rc)
		rc = make_root(p, err);
	if (!rc)
		rc = name_job(p, err);
	if (!rc)
		rc = zt_export_plan(p, err);
	return rc ? rc : zt_find_beginning(p, err);
}

/* All but data, saves and a beginning; the screen of the configuration is not what is asked for. */
static int bench(struct zt_program *p, struct ckpt_err *err)
{
	int rc;

	p->args.quiet = true;
	rc = zt_open_model(p, err);
	if (!rc)
		rc = zt_config_read(p, err);
	if (!rc)
		rc = zt_choose_threads(p, err);
	p->runs = !rc;
	return rc ? rc : zt_bench(p, err);
}

static int everything(struct zt_program *p, struct ckpt_err *err)
{
	int rc = zt_launch_check(p, err);

	if (!rc)
		rc = join_ranks(p, err);
	if (!rc && p->args.check_launch)
		return zt_launch_tell(p, err);
	if (!rc)
		rc = zt_check_paths(p, err);
	if (!rc)
		rc = zt_launch_device(p, err);
	if (!rc && p->args.call == ZT_BENCH)
		return bench(p, err);
	if (!rc && p->args.call == ZT_EVAL)
		return zt_eval(p, err);
	if (!rc)
		rc = begin(p, err);
	p->runs = !rc;
	return rc ? rc : run(p, err);
}

static void release(struct zt_program *p)
{
	zt_data_close(p);
	en_config_release(&p->config);
	ck_buf_release(&p->config_json);
	free(p->logged);
	en_model_free(p->model);
	en_found_release(&p->found);
}

static void unlock(struct zt_program *p)
{
	if (p->lock >= 0)
		en_unlock_folder(p->args.save, p->lock);
	p->lock = -1;
}

/* deepspeed's launcher puts --local_rank=N before the caller's own arguments. */
static void skip_local_rank(int *argc, char ***argv)
{
	static const char own[] = "--local_rank=";

	if (*argc < 3 || strncmp((*argv)[1], own, sizeof(own) - 1) || *(*argv)[2] == '-')
		return;
	(*argv)[1] = (*argv)[0];
	++*argv;
	--*argc;
}

/* What was printed may be kept in a buffer: a full disk shows here at the latest. */
static int close_stdout(int status)
{
	const int bad = ferror(stdout);

	if (!fclose(stdout) && !bad)
		return status;
	zt_say_error("ztrain: ", "stdout: write failed: %s", strerror(errno));
	return status ? status : 1;
}

static int ztrain(int argc, char **argv)
{
	struct zt_program p = { .lock = -1 };
	struct sigaction act = { .sa_handler = on_term };
	struct ckpt_err err = { 0 };
	int rc;

	skip_local_rank(&argc, &argv);
	term_read(argc, argv);
	if (argc > 1 && !strcmp(argv[1], "generate"))
		return zt_generate(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "config"))
		return zt_config_print(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "log"))
		return zt_log(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "report"))
		return zt_report(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "__complete"))
		return zt_complete(argc - 2, argv + 2);
	if (argc > 1 && argv[1][0] != '-' && !zt_is_command(argv[1]))
		return zt_wrong_command(argc, argv);
	rc = zt_args_parse(argc, argv, &p.args);
	if (rc)
		return rc == 1 ? 0 : rc;
	p.config_json = (struct ck_buf)CK_BUF_INIT(MOST_CONFIG);
	act.sa_flags = SA_RESTART;
	if (p.args.save)
		sigaction(SIGTERM, &act, NULL);
	en_config_init(&p.config, EN_DS_0_19);
	rc = everything(&p, &err);
	if (rc) {
		rc = fail(&p, &err);
		unlock(&p);
		fflush(stdout);
		if (p.comm)
			en_comm_abort(p.comm, 1);
		return rc;
	}
	unlock(&p);
	release(&p);
	if (en_comm_close(p.comm, &err)) {
		fail(&p, &err);
		en_comm_abort(p.comm, 1);
	}
	return 0;
}

int main(int argc, char **argv)
{
	return close_stdout(ztrain(argc, argv));
}
