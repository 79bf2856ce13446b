/* en_launch.c -- see en_launch.h. */
#include "engine/launch/en_launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS (1u << 20)

static const char *const launcher_names[] = {
	"", "RANK and WORLD_SIZE", "Open MPI", "PMI", "SLURM", "no launcher",
};

const char *en_launcher_name(enum en_launcher by)
{
	return launcher_names[by];
}

static void find(struct en_launched *l, enum en_launch_finding_id id, bool fatal, const char *fmt,
		 ...) CK_PRINTF(4, 5);
static void find(struct en_launched *l, enum en_launch_finding_id id, bool fatal, const char *fmt,
		 ...)
{
	struct en_launch_finding *f = &l->finding[l->n_findings];
	va_list ap;

	if (l->n_findings == EN_MAX_LAUNCH_FINDINGS)
		return;
	l->n_findings++;
	f->id = id;
	f->fatal = fatal;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
}

/* ---------------------------------------------------------------- who am I */

struct said {
	enum en_launcher by;
	const char *rank_name, *rank, *size_name, *size, *local_name, *local;
};

/* False if the variable is not set or no number, which is a finding. */
static bool number(struct en_launched *l, const char *name, const char *text, uint32_t *out)
{
	const size_t n = text ? strlen(text) : 0;

	if (!text)
		return false;
	if (n && n < 8 && strspn(text, "0123456789") == n &&
	    strtoul(text, NULL, 10) <= MAX_RANKS) {
		*out = (uint32_t)strtoul(text, NULL, 10);
		return true;
	}
	find(l, EN_LAUNCH_BAD_VALUE, true, "%s is \"%.40s\"; expected a whole number up to %u.",
	     name, text, MAX_RANKS);
	return false;
}

/* True if this launcher says rank and size, and both make sense. */
static bool read_one(struct en_launched *l, const struct said *s, uint32_t *rank, uint32_t *size)
{
	if (!s->rank && !s->size)
		return false;
	if (!s->rank || !s->size) {
		/* RANK alone is often a leftover, SLURM_NTASKS alone what an allocation has. */
		if (s->by == EN_LAUNCHED_BY_TORCH)
			find(l, EN_LAUNCH_HALF_SAID, true,
			     "%s is set, %s is not: a launcher sets both. Unset it, or set both.",
			     s->rank ? s->rank_name : s->size_name,
			     s->rank ? s->size_name : s->rank_name);
		return false;
	}
	if (!number(l, s->rank_name, s->rank, rank) || !number(l, s->size_name, s->size, size))
		return false;
	if (*rank < *size)
		return true;
	find(l, EN_LAUNCH_BAD_VALUE, true, "%s is %u and %s is %u: a rank is a number below %s.",
	     s->rank_name, *rank, s->size_name, *size, s->size_name);
	return false;
}

/*
 * Another launcher inside: torchrun under srun with one task a node gives other numbers, and that
 * is right.  A size of 1 outside is such a frame; two different sizes above 1 are a mistake, unless
 * the outer one counts fewer processes, each of which started several.
 */
static void compare(struct en_launched *l, const struct said *inner, const struct said *outer,
		    uint32_t rank, uint32_t size)
{
	if (rank == l->rank && size == l->size)
		return;
	if (size < l->size && l->size % size == 0)
		find(l, EN_LAUNCH_NESTED, false,
		     "%s and %s say rank %u of %u, %s says rank %u of %u; the latter is used.",
		     outer->rank_name, outer->size_name, rank, size, launcher_names[inner->by],
		     l->rank, l->size);
	else
		find(l, EN_LAUNCH_LAUNCHERS_DISAGREE, true,
		     "%s=%u and %s=%u, but %s=%u and %s=%u: two launchers contradict each other. "
		     "Unset the variables that leaked from an outer job, or use one launcher.",
		     inner->rank_name, l->rank, inner->size_name, l->size, outer->rank_name, rank,
		     outer->size_name, size);
}

/* LOCAL_RANK counts beside a launcher that says none: a script may have set it. */
static void local_rank(struct en_launched *l, const struct said *of, const struct en_environ *e)
{
	struct said own = *of;
	const struct said *s = &own;

	if (!own.local) {
		own.local_name = "LOCAL_RANK";
		own.local = e->local_rank;
	}
	l->has_local_rank = number(l, s->local_name, s->local, &l->local_rank);
	if (!l->has_local_rank || l->local_rank <= l->rank)
		return;
	find(l, EN_LAUNCH_BAD_VALUE, true,
	     "%s is %u and %s is %u: a local rank cannot exceed the rank. One of them leaked from "
	     "an outer job.",
	     s->local_name, l->local_rank, s->rank_name, l->rank);
	l->has_local_rank = false;
}

/* One process, of which something says that there were to be more. */
static void alone(struct en_launched *l, const struct en_environ *e)
{
	if (l->by != EN_LAUNCHED_ALONE || e->rank || e->world_size)
		return;
	if (e->accelerate && e->master_addr)
		find(l, EN_LAUNCH_LEFT_ALONE, false,
		     "accelerate launch started only this process, whatever num_processes is (RANK "
		     "and WORLD_SIZE are not set). Start the ranks with torchrun --no-python or "
		     "mpirun.");
	else if (e->local_rank)
		find(l, EN_LAUNCH_HALF_SAID, false,
		     "LOCAL_RANK is \"%.40s\", but RANK and WORLD_SIZE are not set: this process "
		     "trains alone and ignores LOCAL_RANK.",
		     e->local_rank);
}

static void who(struct en_launched *l, const struct en_environ *e)
{
	const struct said all[] = {
		{ EN_LAUNCHED_BY_TORCH, "RANK", e->rank, "WORLD_SIZE", e->world_size, "LOCAL_RANK",
		  e->local_rank },
		{ EN_LAUNCHED_BY_OMPI, "OMPI_COMM_WORLD_RANK", e->ompi_rank, "OMPI_COMM_WORLD_SIZE",
		  e->ompi_size, "OMPI_COMM_WORLD_LOCAL_RANK", e->ompi_local_rank },
		{ EN_LAUNCHED_BY_PMI, "PMI_RANK", e->pmi_rank, "PMI_SIZE", e->pmi_size,
		  "MPI_LOCALRANKID", e->mpi_localrankid },
		/* outside of a step (a batch script, salloc) these are of the script itself */
		{ EN_LAUNCHED_BY_SLURM, "SLURM_PROCID", e->slurm_step_id ? e->slurm_procid : NULL,
		  "SLURM_NTASKS", e->slurm_step_id ? e->slurm_ntasks : NULL, "SLURM_LOCALID",
		  e->slurm_localid },
	};
	const struct said *inner = NULL;

	for (size_t i = 0; i < CK_ARRAY_LEN(all); i++) {
		uint32_t rank = 0, size = 0;

		if (!read_one(l, &all[i], &rank, &size))
			continue;
		if (inner) {
			compare(l, inner, &all[i], rank, size);
			continue;
		}
		inner = &all[i];
		l->by = inner->by;
		l->rank = rank;
		l->size = size;
		local_rank(l, inner, e);
	}
}

/* ------------------------------------------------------------ which device */

/* What SLURM puts there where a job has asked for none. */
#define NO_GPUS "NoDevFiles"

static const char *remedy(const char *list, bool slurm)
{
	if (list && !strcmp(list, NO_GPUS))
		return "SLURM sets this for a job without GPUs: request some (--gpus-per-node or "
		       "--gpus-per-task)";
	if (list)
		return "Unset it, or name GPUs of this host";
	return slurm ? "Request GPUs from SLURM (--gpus-per-node or --gpus-per-task)" :
		       "Check the driver, and that this container has a GPU";
}

/* What CUDA does with a list: it ends at the first entry that is no device. */
static uint32_t listed(const char *list, bool *cut)
{
	uint32_t n = 0;

	*cut = false;
	for (const char *p = list; *p;) {
		const size_t lead = strspn(p, " \t"), all = strcspn(p, ",");
		size_t len = all - (lead < all ? lead : all);
		bool is_name;

		p += lead < all ? lead : all;
		while (len && strchr(" \t", p[len - 1]))
			len--;
		is_name = !strncmp(p, "GPU-", 4) || !strncmp(p, "MIG-", 4);

		if (!len || (!is_name && strspn(p, "0123456789") < len)) {
			*cut = true;
			return n;
		}
		n++;
		p += strcspn(p, ",");
		p += *p == ',';
	}
	return n;
}

static void device_list(struct en_launched *l, const char *list, int devices)
{
	bool cut;
	uint32_t n;

	if (!list || !strcmp(list, NO_GPUS))
		return;
	n = listed(list, &cut);
	if (cut && *list)
		find(l, EN_LAUNCH_DEVICE_LIST, false,
		     "CUDA_VISIBLE_DEVICES is \"%.100s\": CUDA ignores everything from the first "
		     "invalid entry on, after %u.",
		     list, n);
	else if (devices >= 0 && n > (uint32_t)devices)
		find(l, EN_LAUNCH_DEVICE_LIST, false,
		     "CUDA_VISIBLE_DEVICES is \"%.100s\", %u entries, but %d GPUs are visible: "
		     "this host lacks some of them.",
		     list, n, devices);
}

static void no_device(struct en_launched *l, const struct en_environ *e)
{
	const char *list = e->cuda_visible_devices;

	find(l, EN_LAUNCH_NO_DEVICE, true, "No GPU is visible to rank %u%s%.100s%s. %s%s", l->rank,
	     list ? ": CUDA_VISIBLE_DEVICES is \"" : "", list ? list : "", list ? "\"" : "",
	     remedy(list, e->slurm_job_id), list || e->slurm_job_id ? "." : "");
}

static void one_each(struct en_launched *l, const struct en_environ *e)
{
	if (!l->has_local_rank || !l->local_rank)
		return;
	find(l, EN_LAUNCH_ONE_DEVICE_EACH, false,
	     "Rank %u has local rank %u and sees one GPU%s%.60s%s%s: it uses GPU 0. A program that "
	     "uses its local rank as GPU number would fail with \"invalid device ordinal\".",
	     l->rank, l->local_rank, e->cuda_visible_devices ? " (CUDA_VISIBLE_DEVICES=" : "",
	     e->cuda_visible_devices ? e->cuda_visible_devices : "",
	     e->cuda_visible_devices ? ")" : "",
	     e->slurm_gpus_per_task ? ", since --gpus-per-task gives each task its own" : "");
}

static void device(struct en_launched *l, const struct en_environ *e, int devices)
{
	device_list(l, e->cuda_visible_devices, devices);
	if (!devices) {
		no_device(l, e);
	} else if (devices == 1) {
		one_each(l, e);
	} else if (!l->has_local_rank && l->size > 1) {
		find(l, EN_LAUNCH_NO_LOCAL_RANK, true,
		     "%d GPUs are visible, but the local rank of rank %u of %u is unknown, so "
		     "every rank would take GPU 0. Set LOCAL_RANK (%s does not), or give each rank "
		     "one GPU in CUDA_VISIBLE_DEVICES.",
		     devices, l->rank, l->size, launcher_names[l->by]);
	} else if (l->local_rank >= (uint32_t)devices) {
		find(l, EN_LAUNCH_TOO_FEW_DEVICES, true,
		     "Rank %u has local rank %u, but %d GPUs are visible%s%.60s%s: this host has "
		     "fewer GPUs than ranks.",
		     l->rank, l->local_rank, devices,
		     e->cuda_visible_devices ? " (CUDA_VISIBLE_DEVICES=" : "",
		     e->cuda_visible_devices ? e->cuda_visible_devices : "",
		     e->cuda_visible_devices ? ")" : "");
	} else {
		l->device = l->local_rank;
	}
}

static unsigned fatal(const struct en_launched *l, uint32_t from)
{
	unsigned n = 0;

	for (uint32_t i = from; i < l->n_findings; i++)
		n += l->finding[i].fatal;
	return n;
}

unsigned en_launch_check(const struct en_environ *env, int devices, int local,
			 struct en_launched *out)
{
	memset(out, 0, sizeof(*out));
	out->by = EN_LAUNCHED_ALONE;
	out->size = 1;
	who(out, env);
	alone(out, env);
	if (!out->has_local_rank && local >= 0) {
		out->local_rank = (uint32_t)local;
		out->has_local_rank = true;
	}
	if (devices >= 0)
		device(out, env, devices);
	return fatal(out, 0);
}

/* -------------------------------------------------------------- all of us */

static bool same_host(const struct en_seat *a, const struct en_seat *b)
{
	if (*a->machine && *b->machine)
		return !strcmp(a->machine, b->machine);
	return !strcmp(a->host, b->host);
}

static bool same_device(const struct en_seat *a, const struct en_seat *b)
{
	return *a->device && same_host(a, b) && !strcmp(a->device, b->device);
}

uint32_t en_launch_local(const struct en_seat *seat, uint32_t of)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < of; i++)
		n += same_host(&seat[i], &seat[of]);
	return n;
}

/* "Ranks 2, 3 and 5": those with the device of seat 'first'. */
static void list_ranks(const struct en_seat *seat, uint32_t n, uint32_t first, char *text,
		       size_t room)
{
	uint32_t count = 0, told = 0;
	size_t at = (size_t)snprintf(text, room, "Ranks");

	for (uint32_t i = first; i < n; i++)
		count += same_device(&seat[i], &seat[first]);
	for (uint32_t i = first; i < n && told < 8; i++)
		if (same_device(&seat[i], &seat[first]))
			at += (size_t)snprintf(text + at, room - at, "%s %u", !told++ ? "" :
					       told == count ? " and" : ",", seat[i].rank);
	if (count > told)
		snprintf(text + at, room - at, " and %u more", count - told);
}

struct shared {
	bool all_visible;	/* they have one CUDA_VISIBLE_DEVICES, and see one GPU each */
	bool all_local;		/* they have one local rank */
	uint32_t on_host, devices;
};

static struct shared look_at(const struct en_seat *seat, uint32_t n, uint32_t first)
{
	const struct en_seat *a = &seat[first];
	struct shared s = { .all_visible = *a->visible, .all_local = true };

	for (uint32_t i = 0; i < n; i++) {
		const struct en_seat *b = &seat[i];

		if (!same_host(a, b))
			continue;
		s.on_host++;
		s.devices = s.devices > b->devices ? s.devices : b->devices;
		if (!same_device(a, b))
			continue;
		s.all_visible = s.all_visible && b->devices <= 1 && !strcmp(a->visible, b->visible);
		s.all_local = s.all_local && a->local_rank == b->local_rank;
	}
	return s;
}

/* The likeliest cause, and what to do. */
static void explain(const struct en_seat *a, const struct shared *s, char *text, size_t room)
{
	if (s->all_local)
		snprintf(text, room,
			 "All have local rank %u: their launcher sets none, or LOCAL_RANK leaked "
			 "from an outer job.",
			 a->local_rank);
	else if (s->all_visible)
		snprintf(text, room,
			 "CUDA_VISIBLE_DEVICES is \"%.40s\" for all of them: name a different GPU "
			 "for each, or unset it.",
			 a->visible);
	else if (s->devices && s->on_host > s->devices)
		snprintf(text, room,
			 "%u ranks were started on that host, which has %u GPU%s: start at most "
			 "one rank per GPU.",
			 s->on_host, s->devices, s->devices == 1 ? "" : "s");
	else
		snprintf(text, room,
			 "Their local ranks differ, so their CUDA_VISIBLE_DEVICES list it at "
			 "different positions.");
}

unsigned en_launch_seats(const struct en_seat *seat, uint32_t n, struct en_launched *out)
{
	const uint32_t before = out->n_findings;
	char who[120], why[200];

	for (uint32_t i = 0; i < n; i++) {
		const struct en_seat *a = &seat[i];
		struct shared s;
		uint32_t j = 0;
		bool more = false;

		while (j < i && !same_device(&seat[j], a))
			j++;
		for (uint32_t k = i + 1; k < n; k++)
			more = more || same_device(a, &seat[k]);
		if (j < i || !more)
			continue;
		s = look_at(seat, n, i);
		explain(a, &s, why, sizeof(why));
		list_ranks(seat, n, i, who, sizeof(who));
		find(out, EN_LAUNCH_SAME_DEVICE, true, "%s would use one GPU, %s%s%s%s of %s, and "
		     "NCCL would hang or stop with \"Duplicate GPU detected\". %s", who, a->bus,
		     *a->bus ? " (" : "", a->device, *a->bus ? ")" : "", a->host, why);
	}
	return fatal(out, before);
}

/* ------------------------------------------------------- with GPUs or without */

/* The first one that sees no GPU; rather one that something says why of. */
static const struct en_seat *find_blind(const struct en_seat *seat, uint32_t n)
{
	const struct en_seat *first = NULL;

	for (uint32_t i = 0; i < n; i++) {
		if (seat[i].devices)
			continue;
		if (seat[i].has_visible || seat[i].present)
			return &seat[i];
		first = first ? first : &seat[i];
	}
	return first;
}

void en_launch_blind(const struct en_seat *seat, uint32_t n, char *text, size_t room)
{
	const struct en_seat *s = find_blind(seat, n);
	uint32_t others = 0;
	size_t at;

	for (uint32_t i = 0; i < n; i++)
		others += !seat[i].devices && &seat[i] != s;
	at = (size_t)snprintf(text, room, "rank %u of %u on %s sees no GPU", s->rank, n, s->host);
	if (others)
		at += (size_t)snprintf(text + at, room - at, " (nor do%s %u other%s)",
				       others == 1 ? "es" : "", others, others == 1 ? "" : "s");
	if (s->has_visible)
		snprintf(text + at, room - at, ": CUDA_VISIBLE_DEVICES is \"%s\"", s->visible);
	else if (s->present)
		snprintf(text + at, room - at, "; that host has %u", s->present);
}

unsigned en_launch_devices(const struct en_seat *seat, uint32_t n, struct en_launched *out)
{
	const uint32_t before = out->n_findings;
	const struct en_seat *blind = find_blind(seat, n), *sees = NULL;
	char text[240], other[60] = "";

	for (uint32_t i = n; i-- > 0;)
		sees = seat[i].devices ? &seat[i] : sees;
	if (!blind || (!sees && !blind->has_visible && !blind->present))
		return 0;
	if (sees)
		snprintf(other, sizeof(other), "; rank %u sees %u", sees->rank, sees->devices);
	en_launch_blind(seat, n, text, sizeof(text));
	text[0] = 'R';
	find(out, EN_LAUNCH_NO_DEVICE, true, "%s%s. %s, or use --device cpu.", text, other,
	     blind->has_visible ?
		     remedy(blind->visible, false) :
	     blind->present ?
		     "Run nvidia-smi there: the driver does not answer, or this job has no GPU" :
		     "Start all ranks on hosts with GPUs");
	return fatal(out, before);
}
