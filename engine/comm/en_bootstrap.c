/* en_bootstrap.c -- see en_bootstrap.h. */
#include "engine/comm/en_bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm/en_tcp.h"
#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "tools/shared/cli_launched.h"

#define BEHIND_STORE 16u	/* ports after that of torchrun's store */
#define SLURM_PORT 20000u	/* of srun's jobs: from here on, by the job's number */
#define SLURM_PORTS 20000u

static const char *variable(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

static int wrong(struct ckpt_err *err, const char *name, const char *why)
{
	return ck_fail(err, CKPT_E_USAGE, name, CKPT_NO_OFFSET, "%s", why);
}

/* A whole number of 'least' to 'most'. */
static int number(const char *name, unsigned long least, unsigned long most, unsigned long *out,
		  struct ckpt_err *err)
{
	const char *text = variable(name);
	const size_t n = text ? strlen(text) : 0;

	if (!text)
		return wrong(err, name,
			     strcmp(name, "MASTER_PORT") ? "not set" :
			     "not set: set it to a free port of the host in MASTER_ADDR");
	if (n > 9 || strspn(text, "0123456789") != n || strtoul(text, NULL, 10) < least ||
	    strtoul(text, NULL, 10) > most)
		return ck_fail(err, CKPT_E_USAGE, name, CKPT_NO_OFFSET,
			       "\"%.40s\" is not a number from %lu to %lu", text, least, most);
	*out = strtoul(text, NULL, 10);
	return 0;
}

/* Ranks that say the same are of one job. */
static uint64_t job_of(const char *kind, const char *const *names, size_t n)
{
	char text[1024];
	size_t at = (size_t)snprintf(text, sizeof(text), "%s", kind);

	for (size_t i = 0; i < n; i++) {
		const char *v = variable(names[i]);
		int more = snprintf(text + at, sizeof(text) - at, "\n%.200s", v ? v : "");

		at += more > 0 ? (size_t)more : 0;
	}
	return ck_hash64(text, at);
}

static int set_host(struct en_rendezvous *m, const char *host, size_t n, struct ckpt_err *err)
{
	if (n >= sizeof(m->host))
		return wrong(err, "MASTER_ADDR", "longer than any host name");
	memcpy(m->host, host, n);
	m->host[n] = '\0';
	return 0;
}

static int who(struct en_rendezvous *m, const char *rank_name, const char *size_name,
	       struct ckpt_err *err)
{
	unsigned long rank = 0, size = 0;
	int rc = number(size_name, 1, 1u << 20, &size, err);

	if (!rc)
		rc = number(rank_name, 0, size - 1, &rank, err);
	m->rank = (uint32_t)rank;
	m->size = (uint32_t)size;
	return rc;
}

/* All ranks are of this host: by the name of rank 0's, or as the launcher counts them. */
static bool is_local(const struct en_rendezvous *m, const char *here, const char *all)
{
	const char *n = variable(here), *of = all ? variable(all) : "1";

	return en_tcp_is_local_name(m->host) || (n && of && !strcmp(n, of));
}

/* ---- torchrun, deepspeed's launcher, or by hand ---- */

static int torch_port(struct en_rendezvous *m, struct ckpt_err *err)
{
	const char *store = variable("TORCHELASTIC_USE_AGENT_STORE");
	unsigned long port = 0;
	int rc;

	m->ports = 1;
	if (variable("ZTRAIN_PORT")) {
		rc = number("ZTRAIN_PORT", 1, 65535, &port, err);
	} else if (store && !strcmp(store, "True")) {
		rc = number("MASTER_PORT", 1, 65535 - BEHIND_STORE, &port, err);
		port++;
		m->ports = BEHIND_STORE;
	} else {
		rc = number("MASTER_PORT", 1, 65535, &port, err);
	}
	m->port = (uint16_t)port;
	return rc;
}

static int by_torch(struct en_rendezvous *m, struct ckpt_err *err)
{
	static const char *const names[] = {
		"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT",
	};
	const char *host = variable("MASTER_ADDR");
	int rc = who(m, "RANK", "WORLD_SIZE", err);

	if (rc)
		return rc;
	if (!host)
		return wrong(
			err, "MASTER_ADDR",
			"not set, but WORLD_SIZE is above 1: set it to the host of rank 0, and "
			"MASTER_PORT to a free port there (torchrun and deepspeed set both)");
	rc = set_host(m, host, strlen(host), err);
	if (!rc)
		rc = torch_port(m, err);
	m->job = job_of("torch", names, CK_ARRAY_LEN(names));
	m->by = variable("TORCHELASTIC_RUN_ID") ? "torchrun" : "RANK and WORLD_SIZE";
	/* torchrun sets both; by hand, one of them may be left over */
	m->local = variable("TORCHELASTIC_RUN_ID") ?
		   is_local(m, "LOCAL_WORLD_SIZE", "WORLD_SIZE") : en_tcp_is_local_name(m->host);
	return rc;
}

/* ---- srun ---- */

/* The first of "node[03-05,7],other": each list in it begins with its first. */
static size_t first_host(const char *list, char *out, size_t room)
{
	size_t n = 0;

	while (*list && *list != ',' && n + 1 < room) {
		if (*list != '[') {
			out[n++] = *list++;
			continue;
		}
		list++;
		while (*list && !strchr(",-]", *list) && n + 1 < room)
			out[n++] = *list++;
		list += strcspn(list, "]");
		list += *list == ']';
	}
	out[n] = '\0';
	return n;
}

static const struct cli_launcher *const srun = &cli_launchers[CLI_BY_SRUN];

static int by_slurm(struct en_rendezvous *m, struct ckpt_err *err)
{
	static const char *const names[] = { "SLURM_JOB_ID", "SLURM_STEP_ID" };
	const char *list = variable("SLURM_STEP_NODELIST"), *host = variable("MASTER_ADDR");
	const char *name = variable("ZTRAIN_PORT") ? "ZTRAIN_PORT" :
			   variable("MASTER_PORT") ? "MASTER_PORT" : NULL;
	char first[256];
	unsigned long port = 0;
	int rc = who(m, srun->rank, srun->size, err);

	if (!rc && !host && !list)
		rc = wrong(err, "SLURM_STEP_NODELIST",
			   "not set, nor is MASTER_ADDR: the host of rank 0 is unknown");
	if (!rc && host)
		rc = set_host(m, host, strlen(host), err);
	else if (!rc)
		rc = set_host(m, first, first_host(list, first, sizeof(first)), err);
	if (!rc && name)
		rc = number(name, 1, 65535, &port, err);
	m->job = job_of("srun", names, CK_ARRAY_LEN(names));
	m->port = (uint16_t)(name ? port : SLURM_PORT + m->job % SLURM_PORTS);
	m->ports = name ? 1 : BEHIND_STORE;
	m->by = "srun";
	m->local = is_local(m, "SLURM_STEP_NUM_NODES", NULL);
	return rc;
}

/* srun alone says how many there are, and offers MPI no way to find out. */
static bool srun_without_pmi(void)
{
	static const char *const others[] = { "PMI_RANK", "PMI_FD", "PMIX_RANK" };

	for (size_t i = 0; i < CLI_BY_SRUN; i++)
		if (variable(cli_launchers[i].size))
			return false;
	for (size_t i = 0; i < CK_ARRAY_LEN(others); i++)
		if (variable(others[i]))
			return false;
	return variable(srun->size) && variable(srun->rank);
}

/* ---- all of them ---- */

/* RANK and WORLD_SIZE are meant: no launcher of MPI has started as many. */
static bool is_torch(bool has_mpi, uint32_t launched)
{
	const char *size = variable("WORLD_SIZE");

	if (!size || !variable("RANK"))
		return false;
	if (variable("TORCHELASTIC_RUN_ID"))
		return true;
	if (atoi(size) <= 1)
		return false;
	return !has_mpi || (uint32_t)atoi(size) != launched ||
	       (srun_without_pmi() && variable("MASTER_ADDR"));
}

int en_bootstrap_detect(bool has_mpi, enum en_bootstrap *how_out,
			struct en_rendezvous *rendezvous_out, struct ckpt_err *err)
{
	int32_t rank;
	const uint32_t launched = en_comm_launched(&rank);
	const bool torch = is_torch(has_mpi, launched);
	struct en_rendezvous m = { .size = 1 };
	int rc = 0;

	if (!torch && (has_mpi || !srun_without_pmi())) {
		*how_out = launched > 1 || (rank >= 0 && has_mpi) ? EN_BOOT_MPI : EN_BOOT_ALONE;
		return 0;
	}
	if (!torch && launched <= 1) {
		*how_out = EN_BOOT_ALONE;
		return 0;
	}
	if (torch && atoi(getenv("WORLD_SIZE")) == 1) {
		*how_out = EN_BOOT_ALONE;
		return 0;
	}
	rc = torch ? by_torch(&m, err) : by_slurm(&m, err);
	if (rc)
		return rc;
	*rendezvous_out = m;
	*how_out = EN_BOOT_TCP;
	return 0;
}

int en_bootstrap_without_mpi(uint32_t size, struct en_rendezvous *rendezvous_out,
			     struct ckpt_err *err)
{
	int32_t rank;
	const uint32_t launched = en_comm_launched(&rank);
	struct en_rendezvous m = { .size = 1 };
	int rc;

	if (size == 1 && srun_without_pmi()) {
		rc = by_slurm(&m, err);
		if (!rc)
			*rendezvous_out = m;
		return rc;
	}
	return ck_fail(err, CKPT_E_USAGE, "MPI", CKPT_NO_OFFSET,
		       "the launcher started %u processes, but MPI counts %u: this program was "
		       "built with another MPI (or srun's --mpi differs); use the mpirun of its "
		       "MPI, or torchrun --no-python",
		       launched, size);
}
