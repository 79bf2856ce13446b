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

int zt_launch_check(struct zt_program *p, struct ckpt_err *err)
{
	const struct en_environ env = environment();
	struct en_launched l;

	(void)p;
	return en_launch_check(&env, -1, &l) ? refuse(&l, err) : 0;
}

/* All ranks or none; two of them on one GPU would wait for each other for ever. */
int zt_launch_device(struct zt_program *p, struct ckpt_err *err)
{
	const struct en_environ env = environment();
	const uint32_t devices = p->args.device == ZT_CPU ? 0 : en_cuda_count();
	double least = devices;
	struct en_launched l;
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
	if (rc || !p->on_gpu)
		return rc;
	if (en_launch_check(&env, (int)devices, &l))
		return refuse(&l, err);
	p->cuda.device = l.device;
	p->cuda.sum = (enum en_cuda_sum)p->args.reduction;
	p->cuda.fixed = p->cuda.sum == EN_CUDA_SUM_TREE;
	return 0;
}

/* What a rank has to say, as one text that rank 0 prints. */
struct word {
	struct en_seat seat;
	uint32_t device, findings;
	char by[24];
	char text[EN_MAX_LAUNCH_FINDINGS][400];
};

/* A GPU of this host: as the list calls it, or its number. */
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

static void look(struct zt_program *p, struct word *w)
{
	const struct en_environ env = environment();
	const int devices = count_devices(&env);
	struct en_launched l;

	memset(w, 0, sizeof(*w));
	/* without a GPU on the host, and nothing that speaks of one, there is nothing to find */
	en_launch_check(&env, devices || env.cuda_visible_devices ? devices : -1, &l);
	gethostname(w->seat.host, sizeof(w->seat.host) - 1);
	w->seat.rank = p->comm->rank;
	w->seat.local_rank = l.local_rank;
	if (devices)
		name_device(&env, l.device, w->seat.device, sizeof(w->seat.device));
	w->device = l.device;
	snprintf(w->by, sizeof(w->by), "%s", en_launcher_name(l.by));
	for (uint32_t i = 0; i < l.n_findings; i++)
		snprintf(w->text[w->findings++], sizeof(w->text[0]), "%s%s",
			 l.finding[i].fatal ? "ERROR: " : "", l.finding[i].text);
}

static int tell_all(const struct word *w, uint32_t n, struct ckpt_err *err)
{
	struct en_seat *seat = calloc(n, sizeof(*seat));
	struct en_launched l = { .n_findings = 0 };
	int rc = 0;

	for (uint32_t i = 0; i < n && seat; i++) {
		seat[i] = w[i].seat;
		printf("rank %u of %u on %s, started by %s, GPU %s\n", w[i].seat.rank, n,
		       w[i].seat.host, w[i].by, *w[i].seat.device ? w[i].seat.device : "none");
		for (uint32_t k = 0; k < w[i].findings; k++)
			printf("  %s\n", w[i].text[k]);
	}
	if (seat && en_launch_seats(seat, n, &l))
		rc = refuse(&l, err);
	free(seat);
	return rc;
}

int zt_launch_tell(struct zt_program *p, struct ckpt_err *err)
{
	const uint32_t n = p->comm->size;
	struct word *own = calloc(1, sizeof(*own)), *all = calloc(n, sizeof(*all));
	int rc = -CKPT_E_NOMEM;

	if (own && all) {
		look(p, own);
		rc = en_comm_gather_small(p->comm, all, own, sizeof(*own), NULL, err);
	}
	if (!rc && !p->comm->rank)
		rc = tell_all(all, n, err);
	free(own);
	free(all);
	return rc;
}
