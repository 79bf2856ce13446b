/* zt_program.h -- what the files of the program ztrain share. */
#ifndef ZT_PROGRAM_H
#define ZT_PROGRAM_H

#include "engine/comm/en_comm_mpi.h"
#include "engine/comm/en_bootstrap.h"
#include "engine/checkpoint/en_step_settings.h"
#include "engine/config/en_config.h"
#include "engine/data/en_data.h"
#include "engine/launch/en_launch.h"
#include "engine/log/en_left.h"
#include "engine/log/en_log.h"
#include "engine/main/zt_args.h"
#include "engine/main/zt_wait.h"
#include "engine/run/en_run.h"

#define ZT_PATH 4096
#define ZT_NAME 256

struct zt_program {
	struct zt_args args;
	struct en_comm *comm;
	struct en_model *model;
	struct en_config config;
	struct en_step_settings step;	/* ztrain eval: of the run that saved it */
	bool as_deepspeed;	/* of fp16, see struct en_zero_opts */
	unsigned stated;	/* EN_HAS_* of the options */
	unsigned unsaid;	/* those of the optimizer that no option or key has */
	struct ck_buf config_json;	/* what DeepSpeed would be given, for checkpoints */
	struct en_source *source, *eval_source;
	struct en_data data, held;
	uint64_t held_rows;
	char job[64];
	struct en_find_opts find;
	struct en_found found;	/* steps to resume from, and those in --save */
	int lock;		/* rank 0's of --save, or -1 */
	const char *from;	/* what to begin with, or NULL */
	bool on_gpu;
	struct en_cuda_opts cuda;
	bool runs;		/* what goes wrong now may be this rank's alone */
	struct en_export_opts export;	/* dir NULL: nothing is exported */
	char export_dir[ZT_PATH], export_job[ZT_NAME];
	struct en_log *log;	/* rank 0's, or NULL */
	struct en_left left;
	uint64_t unlogged;	/* lines that could not be written */
	bool resumed;		/* the next line is the first after a resume */
	double *logged;		/* memory of ranks, and of their devices, in the last line */
	struct zt_wait wait;	/* rank 0's, what is done while nothing is printed */
};

/* ztrain.c */
int zt_open_model(struct zt_program *p, struct ckpt_err *err);
/* Rank 0 looks, all begin there: p->found, p->from. */
int zt_find_beginning(struct zt_program *p, struct ckpt_err *err);
/* p->args.threads, where the call does not say it. */
int zt_choose_threads(struct zt_program *p, struct ckpt_err *err);
/* As the program is set up. */
struct en_run_opts zt_run_opts(struct zt_program *p);

/* zt_paths.c */
/* A path of the call is missing, or another thing than it takes: CKPT_E_NOTFOUND, CKPT_E_USAGE. */
int zt_check_paths(const struct zt_program *p, struct ckpt_err *err);

/* zt_eval.c */
int zt_eval(struct zt_program *p, struct ckpt_err *err);

/* zt_config.c */
int zt_config_read(struct zt_program *p, struct ckpt_err *err);
/* zt_config_print.c: ztrain config FILE; argv[0] is "config".  The exit status. */
int zt_config_print(int argc, char **argv);

/* zt_adapt.c */
/* p->model, with what the options say is trained of it.  After the device is known. */
int zt_adapt_model(struct zt_program *p, const struct en_model_config *config,
		   struct ckpt_err *err);
/* Where some parameters are frozen, a line that says how many are trained. */
void zt_adapt_tell(const struct zt_program *p);

/* zt_data.c */
/* p->source, unless it is open. */
int zt_data_source(struct zt_program *p, struct ckpt_err *err);
/* Steps of p->args.epochs passes over what is trained on, 'batch' rows a step. */
int zt_data_steps(struct zt_program *p, uint64_t batch, int64_t *out, struct ckpt_err *err);
int zt_data_open(struct zt_program *p, struct ckpt_err *err);
void zt_data_close(struct zt_program *p);
struct en_data_loader zt_data_loader(struct zt_program *p);
struct en_eval_loader zt_data_eval_loader(struct zt_program *p);

/* zt_launch.c */
/* Which device: p->on_gpu, p->cuda.  After the ranks are together. */
int zt_launch_device(struct zt_program *p, struct ckpt_err *err);
/* Says what the environment says of this process; CKPT_E_USAGE if that cannot work. */
int zt_launch_check(struct zt_program *p, struct ckpt_err *err);
/* All of it, for all ranks, and nothing else. */
int zt_launch_tell(struct zt_program *p, struct ckpt_err *err);

/* zt_export.c */
/* After configuration and job name: p->export, and what would stop it at the end of the run. */
int zt_export_plan(struct zt_program *p, struct ckpt_err *err);
void zt_export_tell(const struct zt_program *p, const struct en_ran *ran);

/* zt_tell.c: what a run says.  'arg' is the program. */
void zt_tell_config(struct zt_program *p);
int zt_tell_beginning(void *arg, const struct en_start_report *begun, struct ckpt_err *err);
void zt_tell_step(void *arg, const struct en_step_report *step);
/* Bytes sent and memory used by this rank. */
void zt_tell_counters(const struct zt_program *p, const struct en_mem *mem);
void zt_tell_end(struct zt_program *p, const struct en_ran *ran);

#endif
