/* zt_launch.c -- who this process is and which GPU is its own, from the environment. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/main/zt_program.h"
#include "engine/main/zt_say.h"
#include "libckpt/base/ck_err.h"

static struct en_environ environment(void)
{
	return (struct en_environ){
#define X(name, field) .field = getenv(#name),
		EN_VARIABLES(X)
#undef X
	};
}

/* GPUs of this host, as their device files say. */
static int count_files(void)
{
	glob_t g = { 0 };
	int n = 0;

	if (!glob("/dev/nvidia[0-9]*", 0, NULL, &g))
		n = (int)g.gl_pathc;
	globfree(&g);
	return n;
}

/* A list in CUDA_VISIBLE_DEVICES hides some. */
static int count_devices(const struct en_environ *env)
{
	const char *list = env->cuda_visible_devices;
	const int n = count_files();
	int listed = 1;

	if (!list || !n)
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

	if (en_launch_check(&env, -1, -1, &l))
		return refuse(&l, err);
	for (uint32_t i = 0; i < l.n_findings && !p->args.check_launch; i++) {
		const enum en_launch_finding_id id = l.finding[i].id;

		if (id == EN_LAUNCH_LEFT_ALONE || id == EN_LAUNCH_HALF_SAID)
			zt_say("ztrain: ", "%s", l.finding[i].text);
	}
	return 0;
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
	seat->has_visible = visible;
	seat->present = (uint32_t)count_files();
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

/* Whether all ranks see GPUs, or none does and none was to; the same answer on all of them. */
static int all_or_none(struct zt_program *p, uint32_t devices, bool *on_gpu_out,
		       struct ckpt_err *err)
{
	const struct en_environ env = environment();
	const uint32_t n = p->comm->size;
	struct en_seat own, *all = calloc(n, sizeof(*all));
	struct en_launched l = { .n_findings = 0 };
	int rc = all ? 0 : no_memory(err);

	sit_down(p, &env, devices, &own);
	if (!rc)
		rc = en_comm_gather_small(p->comm, all, &own, sizeof(own), NULL, err);
	if (!rc && en_launch_devices(all, n, &l))
		rc = refuse(&l, err);
	*on_gpu_out = true;
	for (uint32_t i = 0; !rc && i < n; i++)
		*on_gpu_out = *on_gpu_out && all[i].devices;
	if (!rc && !*on_gpu_out && p->args.device == ZT_CUDA) {
		err->code = CKPT_E_UNSUPPORTED;
		snprintf(err->msg, sizeof(err->msg), "--device cuda: ");
		en_launch_blind(all, n, err->msg + strlen(err->msg),
				sizeof(err->msg) - strlen(err->msg));
		rc = -CKPT_E_UNSUPPORTED;
	}
	free(all);
	return rc;
}

/* Without CUDA there is nothing to choose; GPUs that are idle are worth a word. */
static int without_cuda(const struct zt_program *p, struct ckpt_err *err)
{
	const int files = p->args.device == ZT_AUTO ? count_files() : 0;
	const char *list = environment().cuda_visible_devices;

	if (p->args.device == ZT_CUDA) {
		err->code = CKPT_E_UNSUPPORTED;
		snprintf(err->msg, sizeof(err->msg), "--device cuda: this program was built "
			 "without CUDA (make gpu)");
		return -CKPT_E_UNSUPPORTED;
	}
	if (list && p->args.device == ZT_AUTO && !files && !p->comm->rank)
		zt_say("ztrain: ",
		       "note: runs on CPUs: CUDA_VISIBLE_DEVICES is \"%.60s\", but this program "
		       "was built without CUDA (make gpu)",
		       list);
	if (files && !p->comm->rank)
		fprintf(stderr,
			"ztrain: built without CUDA (make gpu): %d GPU%s of this host %s idle\n",
			files, files == 1 ? "" : "s", files == 1 ? "is" : "are");
	return 0;
}

/* All ranks or none; two of them on one GPU would wait for each other forever. */
int zt_launch_device(struct zt_program *p, struct ckpt_err *err)
{
	uint32_t devices = 0;
	int rc = 0;

	p->on_gpu = false;
	if (!en_cuda_is_built()) {
		rc = without_cuda(p, err);
	} else if (p->args.device != ZT_CPU) {
		devices = en_cuda_count();
		rc = all_or_none(p, devices, &p->on_gpu, err);
	}
	if (!rc && !p->on_gpu && p->args.keep_all && !p->comm->rank)
		fputs("ztrain: --keep-all has no effect: CPU ranks always keep all activations\n",
		      stderr);
	if (!rc && !p->on_gpu && p->args.fp8)
		rc = ck_fail(err, CKPT_E_USAGE, "--fp8", CKPT_NO_OFFSET,
			     "CPU ranks have no products of 8-bit numbers: run on GPUs of compute "
			     "capability 8.9 or later (make gpu, build/ztrain-gpu), or without "
			     "--fp8");
	if (rc || !p->on_gpu)
		return rc;
	p->cuda.fp8 = (enum en_cuda_fp8_recipe)p->args.fp8;
	p->cuda.sum = (enum en_cuda_sum)p->args.reduction;
	p->cuda.fixed = p->cuda.sum == EN_CUDA_SUM_TREE;
	p->cuda.keep_all = p->args.keep_all;
	return share_places(p, devices, err);
}

/* ---- what the environment says, and nothing else ---- */

/* What a rank has to say, as one text that rank 0 prints. */
struct word {
	struct place at;
	uint32_t findings, fatal;
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
	p = p ? p + strspn(p, " \t") : NULL;
	if (p)
		snprintf(out, room, "%s:%.*s", host, (int)(strcspn(p, ", \t") % 40), p);
	else
		snprintf(out, room, "%s:%u", host, device);
}

static void look_for_words(struct zt_program *p, const struct en_environ *env, int devices,
			   int local, struct word *w)
{
	struct en_launched l;

	/* without a GPU on the host, and nothing that speaks of one, there is nothing to find */
	if (p->args.device == ZT_CPU)
		devices = -1;
	else if (!devices && !env->cuda_visible_devices && !(en_cuda_is_built() && count_files()))
		devices = -1;
	w->fatal = en_launch_check(env, devices, local, &l);
	devices = devices < 0 ? 0 : devices;
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
	char line[sizeof(*w)];
	int n_said;

	n_said = snprintf(line, sizeof(line), "rank %u of %u on %s, %s%s, ", at->seat.rank, n,
			  at->seat.host, strcmp(w->by, "no launcher") ? "started by " : "", w->by);
	if (n_said < 0 || (size_t)n_said >= sizeof(line))
		n_said = 0;
	if (*at->gpu.pci)
		snprintf(line + n_said, sizeof(line) - (size_t)n_said, "GPU %u: %s, %s, %s",
			 at->device, at->gpu.pci, at->gpu.name, at->gpu.uuid);
	else
		snprintf(line + n_said, sizeof(line) - (size_t)n_said, "%s%s",
			 *at->seat.device ? "GPU " : "no GPU", at->seat.device);
	zt_say_line(stdout, line);
	for (uint32_t k = 0; k < w->findings; k++) {
		snprintf(line, sizeof(line), "  %s", w->text[k]);
		zt_say_line(stdout, line);
	}
}

/* What is wrong with all ranks together: 'err' of the first, and how many each has found itself. */
static int judge_all(const struct zt_program *p, const struct word *w, uint32_t *fatal_out,
		     struct ckpt_err *err)
{
	const uint32_t n = p->comm->size;
	struct place *place = calloc(n, sizeof(*place));
	struct en_seat *seat = calloc(n, sizeof(*seat));
	struct en_launched l = { .n_findings = 0 };
	int rc = place && seat ? 0 : no_memory(err);

	*fatal_out = 0;
	for (uint32_t i = 0; !rc && i < n; i++) {
		place[i] = w[i].at;
		seat[i] = w[i].at.seat;
		*fatal_out += w[i].fatal;
	}
	if (!rc)
		rc = judge(place, n, err);
	if (!rc && !*fatal_out && p->args.device != ZT_CPU && en_launch_devices(seat, n, &l))
		rc = refuse(&l, err);
	free(seat);
	free(place);
	return rc;
}

static int tell_all(const struct zt_program *p, const struct word *w, struct ckpt_err *err)
{
	const uint32_t n = p->comm->size;
	uint32_t fatal;
	int rc = judge_all(p, w, &fatal, err);

	if (!rc && fatal) {
		err->code = CKPT_E_USAGE;
		snprintf(err->msg, sizeof(err->msg), "--check-launch: %u error%s, listed above",
			 fatal, fatal == 1 ? "" : "s");
		rc = -CKPT_E_USAGE;
	}
	if (p->comm->rank)
		return rc;
	if (n > 1)
		printf("%u ranks, connected by %s\n", n, p->comm->ops->name);
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
		look_for_words(p, &env, devices, local, own);
		rc = en_comm_gather_small(p->comm, all, own, sizeof(*own), NULL, err);
	}
	if (!rc)
		rc = tell_all(p, all, err);
	free(own);
	free(all);
	return rc;
}
