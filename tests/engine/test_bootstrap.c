/*
 * How a process was started, by its environment.  If this goes wrong, ranks that were started
 * together train each by itself, or wait for ranks that never come.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm/en_bootstrap.h"

static const char *const names[] = {
	"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
	"TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE", "ZTRAIN_PORT",
	"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
	"MV2_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMI_FD", "PMIX_RANK", "SLURM_JOB_ID",
	"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST",
	"LOCAL_WORLD_SIZE", "SLURM_STEP_NUM_NODES",
};

/* "NAME=VALUE NAME=VALUE": these and no others. */
static void environment(const char *text)
{
	char copy[1024], *next = copy;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	snprintf(copy, sizeof(copy), "%s", text);
	while (next && *next) {
		char *word = strsep(&next, " "), *value = strchr(word, '=');

		*value = '\0';
		setenv(word, value + 1, 1);
	}
}

#define TORCH "RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29500"
#define ELASTIC TORCH " TORCHELASTIC_RUN_ID=x TORCHELASTIC_USE_AGENT_STORE=True"
#define SRUN "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 " \
	     "SLURM_STEP_NODELIST=n[03-05,9]x,m"

static const struct row {
	const char *environment;
	bool has_mpi;
	enum en_bootstrap how; /* 0: refused */
	uint32_t rank, size;
	unsigned port, ports;	/* port 0: of srun's job */
	const char *host, *says;
} rows[] = {
	{"", true, EN_BOOT_ALONE, 0, 0, 0, 0, NULL, NULL},
	{"RANK=3", true, EN_BOOT_ALONE, 0, 0, 0, 0, NULL, NULL},
	{"RANK=0 WORLD_SIZE=1", true, EN_BOOT_ALONE, 0, 0, 0, 0, NULL, NULL},
	{"RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=x OMPI_COMM_WORLD_SIZE=1 "
	 "OMPI_COMM_WORLD_RANK=0",
	 true, EN_BOOT_ALONE, 0, 0, 0, 0, NULL, NULL},
	{TORCH, true, EN_BOOT_TCP, 1, 4, 29500, 1, "a", NULL},
	{TORCH " ZTRAIN_PORT=4000", true, EN_BOOT_TCP, 1, 4, 4000, 1, "a", NULL},
	{ELASTIC, true, EN_BOOT_TCP, 1, 4, 29501, 16, "a", NULL},
	{ELASTIC " ZTRAIN_PORT=4000", false, EN_BOOT_TCP, 1, 4, 4000, 1, "a", NULL},
	{"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1", true, EN_BOOT_MPI, 0, 0, 0, 0, NULL,
	 NULL},
	{"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", true, EN_BOOT_MPI, 0, 0, 0, 0, NULL,
	 NULL},
	{"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", false, EN_BOOT_ALONE, 0, 0, 0, 0, NULL,
	 NULL},
	/* without MPI that is refused by who would open it */
	{"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1", false, EN_BOOT_MPI, 0, 0, 0, 0, NULL,
	 NULL},
	/* mpirun, with variables for programs of torch's */
	{TORCH " OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1", true, EN_BOOT_MPI, 0, 0, 0, 0,
	 NULL, NULL},
	{TORCH " OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1", false, EN_BOOT_TCP, 1, 4, 29500, 1,
	 "a", NULL},
	/* torchrun below srun or mpirun */
	{ELASTIC " SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 PMIX_RANK=0", true, EN_BOOT_TCP, 1, 4,
	 29501, 16, "a", NULL},
	{ELASTIC " SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 PMIX_RANK=1", true, EN_BOOT_TCP, 1, 4,
	 29501, 16, "a", NULL},
	{TORCH " OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0", true, EN_BOOT_TCP, 1, 4, 29500, 1,
	 "a", NULL},
	/* srun */
	{SRUN, true, EN_BOOT_MPI, 0, 0, 0, 0, NULL, NULL},
	{SRUN " PMI_FD=7", true, EN_BOOT_MPI, 0, 0, 0, 0, NULL, NULL},
	{SRUN, false, EN_BOOT_TCP, 2, 4, 0, 16, "n03x", NULL},
	{SRUN " MASTER_ADDR=b MASTER_PORT=77", false, EN_BOOT_TCP, 2, 4, 77, 1, "b", NULL},
	{SRUN " RANK=2 WORLD_SIZE=4 MASTER_ADDR=b MASTER_PORT=77", true, EN_BOOT_TCP, 2, 4, 77, 1,
	 "b", NULL},
	{SRUN " RANK=2 WORLD_SIZE=4 MASTER_ADDR=b MASTER_PORT=77 PMIX_RANK=2", true, EN_BOOT_MPI, 0,
	 0, 0, 0, NULL, NULL},
	{"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", false, EN_BOOT_ALONE, 0, 0, 0, 0, NULL, NULL},
	{"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2", false, 0, 0, 0, 0, 0, "SLURM_STEP_NODELIST",
	 "the host of rank 0 is unknown"},
	/* what is missing, or makes no sense */
	{"RANK=1 WORLD_SIZE=4", true, 0, 0, 0, 0, 0, "MASTER_ADDR", "set it to the host"},
	{"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a", true, 0, 0, 0, 0, 0, "MASTER_PORT", "not set"},
	{TORCH " ZTRAIN_PORT=70000", true, 0, 0, 0, 0, 0, "ZTRAIN_PORT", "not a number from 1 to"},
	{TORCH " ZTRAIN_PORT=4x", true, 0, 0, 0, 0, 0, "ZTRAIN_PORT", "\"4x\""},
	{"RANK=4 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=5", true, 0, 0, 0, 0, 0, "RANK",
	 "not a number from 0 to 3"},
	{"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=65530 TORCHELASTIC_RUN_ID=x "
	 "TORCHELASTIC_USE_AGENT_STORE=True",
	 true, 0, 0, 0, 0, 0, "MASTER_PORT", "to 65519"},
};

static void one_row(const struct row *r)
{
	struct en_rendezvous m = { .size = 99 };
	struct ckpt_err err = { 0 };
	enum en_bootstrap how = 0;
	int rc;

	environment(r->environment);
	rc = en_bootstrap_detect(r->has_mpi, &how, &m, &err);
	if (!r->how) {
		if (rc != -CKPT_E_USAGE || strcmp(err.where, r->host) || !strstr(err.msg, r->says))
			fail_msg("%s: %d, %s: %s", r->environment, rc, err.where, err.msg);
		return;
	}
	if (rc || how != r->how)
		fail_msg("%s: %d, way %d, %s: %s", r->environment, rc, how, err.where, err.msg);
	if (how != EN_BOOT_TCP) {
		assert_int_equal(m.size, 99);	/* as it was */
		return;
	}
	if (m.rank != r->rank || m.size != r->size || strcmp(m.host, r->host) ||
	    m.ports != r->ports || (r->port ? m.port != r->port : m.port < 20000))
		fail_msg("%s: rank %u of %u at %s, ports %u and %u more", r->environment, m.rank,
			 m.size, m.host, m.port, m.ports - 1u);
}

static void every_start_is_understood(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		one_row(&rows[i]);
}

static uint64_t job(const char *text)
{
	struct en_rendezvous m = { .size = 0 };
	struct ckpt_err err = { 0 };
	enum en_bootstrap how;

	environment(text);
	assert_int_equal(en_bootstrap_detect(false, &how, &m, &err), 0);
	assert_int_equal(how, EN_BOOT_TCP);
	return m.job;
}

/* Of one job are those that one launcher started, at one go. */
static void jobs_are_told_apart(void **state)
{
	const uint64_t one = job(ELASTIC " TORCHELASTIC_RESTART_COUNT=0");

	(void)state;
	assert_true(one == job("RANK=3 WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=29500 "
			       "TORCHELASTIC_RUN_ID=x TORCHELASTIC_USE_AGENT_STORE=True "
			       "TORCHELASTIC_RESTART_COUNT=0"));
	assert_true(one != job(ELASTIC " TORCHELASTIC_RESTART_COUNT=1"));
	assert_true(one != job(TORCH " TORCHELASTIC_RUN_ID=y TORCHELASTIC_RESTART_COUNT=0"));
	assert_true(job(TORCH) != job("RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29501"));
	assert_true(job(SRUN) != job("SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_PROCID=2 "
				     "SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=n"));
}

static bool local(const char *text)
{
	struct en_rendezvous m = { .size = 0 };
	enum en_bootstrap how;

	environment(text);
	assert_int_equal(en_bootstrap_detect(false, &how, &m, NULL), 0);
	assert_int_equal(how, EN_BOOT_TCP);
	return m.local;
}

/* Then no other host can reach the ranks at all. */
static void jobs_of_one_host_are_known(void **state)
{
	(void)state;
	assert_true(local("RANK=1 WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=29500"));
	assert_true(local("RANK=1 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500"));
	assert_true(local(ELASTIC " LOCAL_WORLD_SIZE=4"));
	assert_true(local(SRUN " SLURM_STEP_NUM_NODES=1"));
	assert_false(local(TORCH));
	assert_false(local(TORCH " LOCAL_WORLD_SIZE=4"));	/* by hand: it may be left over */
	assert_false(local(ELASTIC " LOCAL_WORLD_SIZE=2"));
	assert_false(local(ELASTIC));
	assert_false(local(SRUN));
	assert_false(local(SRUN " SLURM_STEP_NUM_NODES=2"));
}

/* MPI counts one rank where the launcher has started four. */
static void ranks_that_are_alone_are_found(void **state)
{
	struct en_rendezvous m = { .size = 0 };
	struct ckpt_err err = { 0 };

	(void)state;
	environment("PMI_SIZE=4 PMI_RANK=1");
	assert_int_equal(en_bootstrap_without_mpi(1, &m, &err), -CKPT_E_USAGE);
	assert_non_null(strstr(err.msg, "4 processes, but MPI counts 1"));
	environment(SRUN);
	assert_int_equal(en_bootstrap_without_mpi(1, &m, NULL), 0);
	assert_int_equal(m.rank, 2);
	assert_string_equal(m.host, "n03x");
}

/* The first of what SLURM writes. */
static void lists_of_hosts_begin_with_one(void **state)
{
	static const char *const list[][2] = {
		{ "a", "a" }, { "a,b", "a" }, { "a[1-3]", "a1" }, { "a[07,9]", "a07" },
		{ "r[1-2]n[10-20].x,z", "r1n10.x" }, { "a[1-3", "a1" }, { "a[", "a" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		struct en_rendezvous m = { .size = 0 };
		enum en_bootstrap how;
		char text[256];

		snprintf(text, sizeof(text), "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 "
			 "SLURM_STEP_NODELIST=%s", list[i][0]);
		environment(text);
		assert_int_equal(en_bootstrap_detect(false, &how, &m, NULL), 0);
		assert_string_equal(m.host, list[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_start_is_understood),
		cmocka_unit_test(jobs_are_told_apart),
		cmocka_unit_test(jobs_of_one_host_are_known),
		cmocka_unit_test(ranks_that_are_alone_are_found),
		cmocka_unit_test(lists_of_hosts_begin_with_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
