/* zt_launch.c -- who this process is and which GPU is its own, as the environment tells it. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/main/zt_program.h"

static struct en_environ environment(void)
{
	return (struct en_environ){
#define X(name, field) .field = getenv(#name),
		EN_VARIABLES(X)
#undef X
	};
}

/* GPUs of this host, as their device files say; a list in CUDA_VISIBLE_DEVICES hides some. */
static int count_devices(const struct en_environ *env)
{
	const char *list = env->cuda_visible_devices;
	glob_t g = { 0 };
	int n, listed = 1;

	if (glob("/dev/nvidia[0-9]*", 0, NULL, &g)) {
		globfree(&g);
		return 0;
	}
	n = (int)g.gl_pathc;
	globfree(&g);
	if (!list)
		return n;
	for (const char *p = list; *p; p++)
		listed += *p == ',';
	if (!*list)
		listed = 0;
	return listed < n ? listed : n;
}

static int refuse(const struct en_launched *l, struct ckpt_err *err)
{
	for (uint32_t i = 0; i < l->n_findings; i++) {
		if (!l->finding[i].fatal)
			continue;
		err->code = CKPT_E_USAGE;
		snprintf(err->msg, sizeof(err->msg), "%s", l->finding[i].text);
		return -CKPT_E_USAGE;
	}
	return 0;
}

static int no_memory(struct ckpt_err *err)
{
	err->code = CKPT_E_NOMEM;
	return -CKPT_E_NOMEM;
}

int zt_launch_check(struct zt_program *p, struct ckpt_err *err)
{
	const struct en_environ env = environment();
	struct en_launched l;

	(void)p;
	return en_launch_check(&env, -1, -1, &l) ? refuse(&l, err) : 0;
}

/* ---- who is where ---- */

/* A rank's place: what all others learn of it. */
struct place {
	struct en_seat seat;
	struct en_cuda_device gpu;
	uint32_t device;	/* its number among those that the rank sees */
	char refusal[400];	/* "" = none */
};

/* The same for all processes of one running system, in whatever container. */
static void read_machine(char *out, size_t room)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");

	*out = '\0';
	if (!f)
		return;
	if (fgets(out, (int)room, f))
		out[strcspn(out, "\n")] = '\0';
	fclose(f);
}

static void sit_down(const struct zt_program *p, const struct en_environ *env, uint32_t devices,
		     struct en_seat *seat)
{
	const char *visible = env->cuda_visible_devices;

	memset(seat, 0, sizeof(*seat));
	gethostname(seat->host, sizeof(seat->host) - 1);
	read_machine(seat->machine, sizeof(seat->machine));
	snprintf(seat->visible, sizeof(seat->visible), "%s", visible ? visible : "");
	seat->rank = p->comm->rank;
	seat->devices = devices;
}

/* Which rank of its host this one is; all ranks call it.  -1: it could not be found out. */
static int local_of(struct zt_program *p, const struct en_seat *own, int *local_out,
		    struct ckpt_err *err)
{
	struct en_seat *all = calloc(p->comm->size, sizeof(*all));
	int rc;

	if (!all)
		return no_memory(err);
	rc = en_comm_gather_small(p->comm, all, own, sizeof(*own), NULL, err);
	if (!rc)
		*local_out = (int)en_launch_local(all, p->comm->rank);
	free(all);
	return rc;
}

/* This rank's GPU, or why it has none. */
static void choose(struct zt_program *p, const struct en_environ *env, int local,
		   struct place *own)
{
	struct ckpt_err err = { 0 };
	struct en_launched l;

	if (en_launch_check(env, (int)own->seat.devices, local, &l)) {
		refuse(&l, &err);
		snprintf(own->refusal, sizeof(own->refusal), "%.399s", err.msg);
		return;
	}
	own->seat.local_rank = l.local_rank;
	own->device = l.device;
	if (en_cuda_device(l.device, &own->gpu, &err)) {
		snprintf(own->refusal, sizeof(own->refusal), "rank %u: GPU %u of %s: %.300s",
			 p->comm->rank, l.device, own->seat.host, err.msg);
		return;
	}
	memcpy(own->seat.device, own->gpu.uuid, sizeof(own->gpu.uuid));
	memcpy(own->seat.bus, own->gpu.pci, sizeof(own->seat.bus));
	p->cuda.device = l.device;
}

/* The same on all ranks, so that none of them waits for one that is gone. */
static int judge(const struct place *all, uint32_t n, struct ckpt_err *err)
{
	struct en_seat *seat = calloc(n, sizeof(*seat));
	struct en_launched l = { .n_findings = 0 };
	int rc = 0;

	if (!seat)
		return no_memory(err);
	for (uint32_t i = 0; i < n; i++) {
		seat[i] = all[i].seat;
		if (!rc && all[i].refusal[0]) {
			err->code = CKPT_E_USAGE;
			snprintf(err->msg, sizeof(err->msg), "%s", all[i].refusal);
			rc = -CKPT_E_USAGE;
		}
	}
	if (!rc && en_launch_seats(seat, n, &l))
		rc = refuse(&l, err);
	free(seat);
	return rc;
}

static double gib(uint64_t bytes)
{
	return (double)bytes / (1 << 30);
}

static void tell_places(const struct place *all, uint32_t n)
{
	int wide = 4;

	if (n == 1) {
		printf("GPU %u of %s: %s, %s, %.1f of %.1f GiB free\n", all->device,
		       all->seat.host, all->gpu.pci, all->gpu.name, gib(all->gpu.free_bytes),
		       gib(all->gpu.bytes));
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		const int len = (int)strlen(all[i].seat.host);

		wide = len > wide ? len : wide;
	}
	printf("rank  %-*s  local  GPU  bus           name, memory free\n", wide, "host");
	for (uint32_t i = 0; i < n; i++) {
		const struct place *p = &all[i];

		printf("%4u  %-*s  %5u  %3u  %-12s  %s, %.1f of %.1f GiB\n", p->seat.rank, wide,
		       p->seat.host, p->seat.local_rank, p->device, p->gpu.pci, p->gpu.name,
		       gib(p->gpu.free_bytes), gib(p->gpu.bytes));
	}
	fflush(stdout);
}

/* Ranks have their GPUs, each another one, or none begins. */
static int share_places(struct zt_program *p, uint32_t devices, struct ckpt_err *err)
{
	const struct en_environ env = environment();
	struct place *own = calloc(1, sizeof(*own)), *all = calloc(p->comm->size, sizeof(*all));
	int local = -1, rc = own && all ? 0 : no_memory(err);

	if (!rc) {
		sit_down(p, &env, devices, &own->seat);
		rc = local_of(p, &own->seat, &local, err);
	}
	if (!rc) {
		choose(p, &env, local, own);
		rc = en_comm_gather_small(p->comm, all, own, sizeof(*own), NULL, err);
	}
	if (!rc)
		rc = judge(all, p->comm->size, err);
	if (!rc && !p->comm->rank && !p->args.quiet)
		tell_places(all, p->comm->size);
	free(own);
	free(all);
	return rc;
}

/* All ranks or none; two of them on one GPU would wait for each other for ever. */
int zt_launch_device(struct zt_program *p, struct ckpt_err *err)
{
	const uint32_t devices = p->args.device == ZT_CPU ? 0 : en_cuda_count();
	double least = devices;
	int rc = 0;

	if (en_cuda_is_built())
		rc = en_comm_all_reduce(p->comm, &least, KN_NUM_F64, 1, EN_COMM_MIN, NULL, err);
	p->on_gpu = least > 0;
	if (!rc && !p->on_gpu && p->args.device == ZT_CUDA) {
		err->code = CKPT_E_UNSUPPORTED;
		snprintf(err->msg, sizeof(err->msg), en_cuda_is_built() ?
			 "--device cuda: a rank sees no GPU" :
			 "--device cuda: this program was built without CUDA (make gpu)");
		return -CKPT_E_UNSUPPORTED;
	}
	if (!rc && !p->on_gpu && p->args.keep_all && !p->comm->rank)
		fputs("ztrain: --keep-all has no effect: CPU ranks keep all of it in any case\n",
		      stderr);
	if (rc || !p->on_gpu)
		return rc;
	p->cuda.sum = (enum en_cuda_sum)p->args.reduction;
	p->cuda.fixed = p->cuda.sum == EN_CUDA_SUM_TREE;
	p->cuda.keep_all = p->args.keep_all;
	return share_places(p, devices, err);
}

/* ---- what the environment says, and nothing else ---- */

/* What a rank has to say, as one text that rank 0 prints. */
struct word {
	struct place at;
	uint32_t findings;
	char by[24];
	char text[EN_MAX_LAUNCH_FINDINGS][400];
};

/* A GPU of this host, where CUDA is not here to ask: as the list calls it, or its number. */
static void name_device(const struct en_environ *env, uint32_t device, char *out, size_t room)
{
	const char *p = env->cuda_visible_devices;
	char host[24];

	gethostname(host, sizeof(host) - 1);
	host[sizeof(host) - 1] = 0;
	for (uint32_t i = 0; p && i < device; i++) {
		p = strchr(p, ',');
		p += p != NULL;
	}
	if (p)
		snprintf(out, room, "%s:%.*s", host, (int)(strcspn(p, ",") % 40), p);
	else
		snprintf(out, room, "%s:%u", host, device);
}

static void look(struct zt_program *p, const struct en_environ *env, int devices, int local,
		 struct word *w)
{
	struct en_launched l;

	/* without a GPU on the host, and nothing that speaks of one, there is nothing to find */
	en_launch_check(env, devices || env->cuda_visible_devices ? devices : -1, local, &l);
	w->at.seat.local_rank = l.local_rank;
	w->at.device = l.device;
	snprintf(w->by, sizeof(w->by), "%s", en_launcher_name(l.by));
	for (uint32_t i = 0; i < l.n_findings; i++)
		snprintf(w->text[w->findings++], sizeof(w->text[0]), "%s%s",
			 l.finding[i].fatal ? "ERROR: " : "", l.finding[i].text);
	if (devices && en_cuda_is_built())
		choose(p, env, local, &w->at);
	else if (devices)
		name_device(env, l.device, w->at.seat.device, sizeof(w->at.seat.device));
}

static void tell_word(const struct word *w, uint32_t n)
{
	const struct place *at = &w->at;

	printf("rank %u of %u on %s, started by %s, ", at->seat.rank, n, at->seat.host, w->by);
	if (*at->gpu.pci)
		printf("GPU %u: %s, %s, %s\n", at->device, at->gpu.pci, at->gpu.name, at->gpu.uuid);
	else
		printf("GPU %s\n", *at->seat.device ? at->seat.device : "none");
	for (uint32_t k = 0; k < w->findings; k++)
		printf("  %s\n", w->text[k]);
}

static int tell_all(const struct zt_program *p, const struct word *w, struct ckpt_err *err)
{
	const uint32_t n = p->comm->size;
	struct place *place = calloc(n, sizeof(*place));
	int rc = place ? 0 : no_memory(err);

	if (!rc) {
		for (uint32_t i = 0; i < n; i++)
			place[i] = w[i].at;
		rc = judge(place, n, err);
	}
	free(place);
	if (p->comm->rank)
		return rc;
	if (n > 1)
		printf("%u ranks, together by %s\n", n, p->comm->ops->name);
	for (uint32_t i = 0; i < n; i++)
		tell_word(&w[i], n);
	fflush(stdout);
	return rc;
}

int zt_launch_tell(struct zt_program *p, struct ckpt_err *err)
{
	const struct en_environ env = environment();
	const uint32_t n = p->comm->size;
	const int devices = en_cuda_is_built() ? (int)en_cuda_count() : count_devices(&env);
	struct word *own = calloc(1, sizeof(*own)), *all = calloc(n, sizeof(*all));
	int local = -1, rc = own && all ? 0 : no_memory(err);

	if (!rc) {
		sit_down(p, &env, (uint32_t)devices, &own->at.seat);
		rc = local_of(p, &own->at.seat, &local, err);
	}
	if (!rc) {
		look(p, &env, devices, local, own);
		rc = en_comm_gather_small(p->comm, all, own, sizeof(*own), NULL, err);
	}
	if (!rc)
		rc = tell_all(p, all, err);
	free(own);
	free(all);
	return rc;
}
