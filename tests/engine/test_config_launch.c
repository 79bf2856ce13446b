/*
 * Who a process is and which GPU it takes. If this goes wrong under SLURM, all ranks compute on GPU
 * 0, or the run ends with "invalid device ordinal" without a reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "engine/launch/en_launch.h"

struct row {
	const char *name;
	struct en_environ env;
	int devices;
	enum en_launcher by;
	uint32_t rank, size, device;
	unsigned fatal;
	enum en_launch_finding_id id;	/* one that must be there; 0: none at all */
	const char *says;
};

#define TORCH(r, w, l) .rank = r, .world_size = w, .local_rank = l
#define SLURM(r, w, l) .slurm_job_id = "7", .slurm_step_id = "0", .slurm_procid = r, \
		       .slurm_ntasks = w, .slurm_localid = l
#define OMPI(r, w, l) .ompi_rank = r, .ompi_size = w, .ompi_local_rank = l

static const struct row rows[] = {
	{ "alone", { .rank = NULL }, -1, EN_LAUNCHED_ALONE, 0, 1, 0, 0, 0, NULL },
	{ "alone with GPUs", { .rank = NULL }, 8, EN_LAUNCHED_ALONE, 0, 1, 0, 0, 0, NULL },
	{ "torchrun", { TORCH("5", "16", "5") }, 8, EN_LAUNCHED_BY_TORCH, 5, 16, 5, 0, 0, NULL },
	{ "torchrun, second host",
	  { TORCH("9", "16", "1") },
	  8,
	  EN_LAUNCHED_BY_TORCH,
	  9,
	  16,
	  1,
	  0,
	  0,
	  NULL },
	{ "mpirun", { OMPI("3", "4", "3") }, 4, EN_LAUNCHED_BY_OMPI, 3, 4, 3, 0, 0, NULL },
	{ "MPICH",
	  { .pmi_rank = "1", .pmi_size = "2", .mpi_localrankid = "1" },
	  2,
	  EN_LAUNCHED_BY_PMI,
	  1,
	  2,
	  1,
	  0,
	  0,
	  NULL },
	{ "srun, all GPUs visible",
	  { SLURM("2", "4", "2") },
	  4,
	  EN_LAUNCHED_BY_SLURM,
	  2,
	  4,
	  2,
	  0,
	  0,
	  NULL },
	{ "srun on CPUs", { SLURM("2", "4", "2") }, -1, EN_LAUNCHED_BY_SLURM, 2, 4, 0, 0, 0, NULL },

	/* the trap: one GPU each, renumbered 0 */
	{ "srun --gpus-per-task=1",
	  { SLURM("3", "4", "3"), .slurm_gpus_per_task = "1", .cuda_visible_devices = "3" },
	  1,
	  EN_LAUNCHED_BY_SLURM,
	  3,
	  4,
	  0,
	  0,
	  EN_LAUNCH_ONE_DEVICE_EACH,
	  "--gpus-per-task" },
	{ "CUDA_VISIBLE_DEVICES by a wrapper",
	  { TORCH("2", "4", "2"), .cuda_visible_devices = "2" },
	  1,
	  EN_LAUNCHED_BY_TORCH,
	  2,
	  4,
	  0,
	  0,
	  EN_LAUNCH_ONE_DEVICE_EACH,
	  "CUDA_VISIBLE_DEVICES=2" },
	/* its other side: all of them visible, and no number of its own */
	{ "PMI without a local rank",
	  { .pmi_rank = "1", .pmi_size = "4" },
	  4,
	  EN_LAUNCHED_BY_PMI,
	  1,
	  4,
	  0,
	  1,
	  EN_LAUNCH_NO_LOCAL_RANK,
	  "every rank would take GPU 0" },
	{ "more ranks than GPUs",
	  { SLURM("5", "8", "5") },
	  4,
	  EN_LAUNCHED_BY_SLURM,
	  5,
	  8,
	  0,
	  1,
	  EN_LAUNCH_TOO_FEW_DEVICES,
	  "local rank 5, but 4 GPUs" },
	{ "a list for fewer",
	  { TORCH("3", "4", "3"), .cuda_visible_devices = "0,1" },
	  2,
	  EN_LAUNCHED_BY_TORCH,
	  3,
	  4,
	  0,
	  1,
	  EN_LAUNCH_TOO_FEW_DEVICES,
	  "CUDA_VISIBLE_DEVICES=0,1" },
	{ "none",
	  { SLURM("0", "2", "0") },
	  0,
	  EN_LAUNCHED_BY_SLURM,
	  0,
	  2,
	  0,
	  1,
	  EN_LAUNCH_NO_DEVICE,
	  "Request GPUs from SLURM" },
	{ "none, hidden",
	  { .cuda_visible_devices = "" },
	  0,
	  EN_LAUNCHED_ALONE,
	  0,
	  1,
	  0,
	  1,
	  EN_LAUNCH_NO_DEVICE,
	  "CUDA_VISIBLE_DEVICES is \"\"" },
	{ "none, hidden by -1",
	  { .cuda_visible_devices = "-1" },
	  0,
	  EN_LAUNCHED_ALONE,
	  0,
	  1,
	  0,
	  1,
	  EN_LAUNCH_DEVICE_LIST,
	  "after 0" },
	{ "a list with a typo",
	  { TORCH("0", "2", "0"), .cuda_visible_devices = "0,x,1" },
	  1,
	  EN_LAUNCHED_BY_TORCH,
	  0,
	  2,
	  0,
	  0,
	  EN_LAUNCH_DEVICE_LIST,
	  "after 1" },
	{ "a list of another host",
	  { TORCH("0", "2", "0"), .cuda_visible_devices = "0,9" },
	  1,
	  EN_LAUNCHED_BY_TORCH,
	  0,
	  2,
	  0,
	  0,
	  EN_LAUNCH_DEVICE_LIST,
	  "2 entries, but 1 GPUs" },
	{ "names",
	  { TORCH("1", "2", "1"), .cuda_visible_devices = "GPU-1a,MIG-2" },
	  2,
	  EN_LAUNCHED_BY_TORCH,
	  1,
	  2,
	  1,
	  0,
	  0,
	  NULL },

	{ "a list with spaces",
	  { TORCH("1", "2", "1"), .cuda_visible_devices = " 0, 1 " },
	  2,
	  EN_LAUNCHED_BY_TORCH,
	  1,
	  2,
	  1,
	  0,
	  0,
	  NULL },
	{ "SLURM gave none",
	  { SLURM("0", "2", "0"), .cuda_visible_devices = "NoDevFiles" },
	  0,
	  EN_LAUNCHED_BY_SLURM,
	  0,
	  2,
	  0,
	  1,
	  EN_LAUNCH_NO_DEVICE,
	  "for a job without GPUs" },
	{ "PMI, and LOCAL_RANK of a script",
	  { .pmi_rank = "1", .pmi_size = "4", .local_rank = "1" },
	  4,
	  EN_LAUNCHED_BY_PMI,
	  1,
	  4,
	  1,
	  0,
	  0,
	  NULL },
	{ "LOCAL_RANK alone",
	  { .local_rank = "1" },
	  4,
	  EN_LAUNCHED_ALONE,
	  0,
	  1,
	  0,
	  0,
	  EN_LAUNCH_HALF_SAID,
	  "ignores LOCAL_RANK" },
	{ "accelerate launch that started one",
	  { .accelerate = "no", .master_addr = "127.0.0.1", .master_port = "29500" },
	  -1,
	  EN_LAUNCHED_ALONE,
	  0,
	  1,
	  0,
	  0,
	  EN_LAUNCH_LEFT_ALONE,
	  "started only this process" },

	/* one launcher inside another */
	{ "torchrun under srun",
	  { TORCH("9", "16", "1"), SLURM("1", "2", "0") },
	  8,
	  EN_LAUNCHED_BY_TORCH,
	  9,
	  16,
	  1,
	  0,
	  EN_LAUNCH_NESTED,
	  "the latter is used" },
	{ "mpirun in srun's shell",
	  { OMPI("1", "4", "1"), SLURM("0", "1", "0") },
	  4,
	  EN_LAUNCHED_BY_OMPI,
	  1,
	  4,
	  1,
	  0,
	  EN_LAUNCH_NESTED,
	  "rank 0 of 1" },
	{ "both agree",
	  { TORCH("1", "4", "1"), SLURM("1", "4", "1") },
	  4,
	  EN_LAUNCHED_BY_TORCH,
	  1,
	  4,
	  1,
	  0,
	  0,
	  NULL },
	{ "srun in a shell of torchrun's",
	  { TORCH("0", "1", "0"), SLURM("3", "4", "3") },
	  4,
	  EN_LAUNCHED_BY_TORCH,
	  0,
	  1,
	  0,
	  1,
	  EN_LAUNCH_LAUNCHERS_DISAGREE,
	  "leaked" },
	{ "two sizes",
	  { TORCH("0", "8", "0"), OMPI("0", "6", "0") },
	  8,
	  EN_LAUNCHED_BY_TORCH,
	  0,
	  8,
	  0,
	  1,
	  EN_LAUNCH_LAUNCHERS_DISAGREE,
	  "WORLD_SIZE=8" },
	{ "an allocation, and no step",
	  { .slurm_job_id = "7", .slurm_procid = "0", .slurm_ntasks = "64", .slurm_localid = "0" },
	  1,
	  EN_LAUNCHED_ALONE,
	  0,
	  1,
	  0,
	  0,
	  0,
	  NULL },

	/* nonsense */
	{ "a rank alone",
	  { .rank = "3" },
	  -1,
	  EN_LAUNCHED_ALONE,
	  0,
	  1,
	  0,
	  1,
	  EN_LAUNCH_HALF_SAID,
	  "WORLD_SIZE is not" },
	{ "no number",
	  { TORCH("one", "2", "0") },
	  -1,
	  EN_LAUNCHED_ALONE,
	  0,
	  1,
	  0,
	  1,
	  EN_LAUNCH_BAD_VALUE,
	  "RANK is \"one\"" },
	{ "empty",
	  { TORCH("", "2", "0") },
	  -1,
	  EN_LAUNCHED_ALONE,
	  0,
	  1,
	  0,
	  1,
	  EN_LAUNCH_BAD_VALUE,
	  "RANK is \"\"" },
	{ "a rank too high",
	  { TORCH("4", "4", "0") },
	  -1,
	  EN_LAUNCHED_ALONE,
	  0,
	  1,
	  0,
	  1,
	  EN_LAUNCH_BAD_VALUE,
	  "a rank is a number below WORLD_SIZE" },
	{ "huge",
	  { TORCH("99999999999999999999", "2", "0") },
	  -1,
	  EN_LAUNCHED_ALONE,
	  0,
	  1,
	  0,
	  1,
	  EN_LAUNCH_BAD_VALUE,
	  "expected a whole number up to" },
	{ "a local rank of another job",
	  { TORCH("1", "8", "6") },
	  8,
	  EN_LAUNCHED_BY_TORCH,
	  1,
	  8,
	  0,
	  2,
	  EN_LAUNCH_BAD_VALUE,
	  "leaked from an outer job" },
};

static void one_row(const struct row *r)
{
	struct en_launched l;
	const unsigned fatal = en_launch_check(&r->env, r->devices, -1, &l);
	bool found = false, said = false;

	if (l.by != r->by || l.rank != r->rank || l.size != r->size || l.device != r->device)
		fail_msg("%s: rank %u of %u by %s, GPU %u", r->name, l.rank, l.size,
			 en_launcher_name(l.by), l.device);
	if (fatal != r->fatal)
		fail_msg("%s: %u are fatal; %s", r->name, fatal,
			 l.n_findings ? l.finding[0].text : "");
	for (uint32_t i = 0; i < l.n_findings; i++) {
		found = found || l.finding[i].id == r->id;
		said = said || (l.finding[i].id == r->id && strstr(l.finding[i].text, r->says));
		assert_int_equal(l.finding[i].text[strlen(l.finding[i].text) - 1], '.');
	}
	if (!r->id ? l.n_findings != 0 : !found || !said)
		fail_msg("%s: %u findings, %s", r->name, l.n_findings,
			 l.n_findings ? l.finding[0].text : "");
}

static void every_way_to_start_is_understood(void **state)
{
	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++)
		one_row(&rows[i]);
}

static void give(struct en_seat *s, const char *device)
{
	snprintf(s->device, sizeof(s->device), "%s", device);
}

static const char *said(const struct en_seat *seat, uint32_t n, unsigned findings)
{
	static struct en_launched l;

	l = (struct en_launched){ .by = EN_LAUNCHED_BY_SLURM };
	assert_int_equal(en_launch_seats(seat, n, &l), findings);
	assert_int_equal(l.n_findings, findings);
	for (uint32_t i = 0; i < findings; i++)
		assert_int_equal(l.finding[i].id, EN_LAUNCH_SAME_DEVICE);
	return l.finding[0].text;
}

static void two_ranks_on_one_gpu_are_named(void **state)
{
	struct en_seat seats[4] = {
		{ .host = "a", .device = "GPU-1", .rank = 0, .local_rank = 0, .devices = 2 },
		{ .host = "a", .device = "GPU-2", .rank = 1, .local_rank = 1, .devices = 2 },
		{ .host = "b", .device = "GPU-1", .rank = 2, .local_rank = 0, .devices = 1,
		  .bus = "0000:1B:00.0" },
		{ .host = "b", .device = "GPU-2", .rank = 3, .local_rank = 1, .devices = 1 },
	};
	const char *text;

	(void)state;
	said(seats, 4, 0);
	give(&seats[3], "GPU-1");
	text = said(seats, 4, 1);
	assert_non_null(strstr(text, "Ranks 2 and 3 would use one GPU, 0000:1B:00.0 (GPU-1) of b"));
	assert_non_null(strstr(text, "2 ranks were started on that host, which has 1 GPU:"));
	for (int i = 2; i < 4; i++)
		snprintf(seats[i].visible, sizeof(seats[i].visible), "3");
	text = said(seats, 4, 1);
	assert_non_null(strstr(text, "CUDA_VISIBLE_DEVICES is \"3\" for all of them"));
	seats[2].devices = seats[3].devices = 2;
	text = said(seats, 4, 1);
	assert_non_null(strstr(text, "list it at different positions"));
	seats[3].local_rank = 0;
	text = said(seats, 4, 1);
	assert_non_null(strstr(text, "All have local rank 0"));
	give(&seats[1], "GPU-1");
	assert_non_null(strstr(said(seats, 4, 2), "Ranks 0 and 1 would use one GPU, GPU-1 of a"));
}

/* Two hosts may have one name, and containers of one host several. */
static void hosts_are_what_they_say_of_themselves(void **state)
{
	struct en_seat seats[3] = {
		{ .host = "node", .machine = "1", .device = "GPU-1", .rank = 0 },
		{ .host = "node", .machine = "2", .device = "GPU-1", .rank = 1 },
		{ .host = "pod", .machine = "1", .device = "GPU-2", .rank = 2 },
	};

	(void)state;
	said(seats, 3, 0);
	assert_int_equal(en_launch_local(seats, 0), 0);
	assert_int_equal(en_launch_local(seats, 1), 0);
	assert_int_equal(en_launch_local(seats, 2), 1);
	give(&seats[2], "GPU-1");
	assert_non_null(strstr(said(seats, 3, 1), "Ranks 0 and 2 "));
}

/* Ranks on CPUs share whatever there is; and a list has an end. */
static void many_seats_are_looked_at(void **state)
{
	static struct en_seat seats[64];

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		seats[i] = (struct en_seat){ .host = "a", .rank = i, .local_rank = i };
	said(seats, 64, 0);
	for (uint32_t i = 0; i < 64; i++)
		give(&seats[i], "GPU-1");
	assert_non_null(strstr(said(seats, 64, 1), "Ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 more "));
	give(&seats[0], "GPU-2");
	assert_non_null(strstr(said(seats, 4, 1), "Ranks 1, 2 and 3 "));
	for (uint32_t i = 0; i < 64; i++)
		give(&seats[i], (const char *[]){ "a", "b", "c", "d" }[i % 4]);
	said(seats, 64, 4);
	said(seats, 0, 0);
}

/* A run of days on the CPUs of a host with GPUs begins with one variable. */
static void ranks_without_a_gpu_are_named(void **state)
{
	struct en_seat seats[2] = {
		{ .host = "a", .rank = 0, .devices = 2 }, { .host = "b", .rank = 1 },
	};
	struct en_launched l = { .n_findings = 0 };

	(void)state;
	assert_int_equal(en_launch_devices(seats, 1, &l), 0);
	assert_int_equal(en_launch_devices(seats + 1, 1, &l), 0);
	assert_int_equal(en_launch_devices(seats, 2, &l), 1);
	assert_string_equal(l.finding[0].text, "Rank 1 of 2 on b sees no GPU; rank 0 sees 2. "
			    "Start all ranks on hosts with GPUs, or use --device cpu.");
	seats[0].devices = 0;
	assert_int_equal(en_launch_devices(seats, 2, &l), 0);
	seats[1].present = 8;
	assert_int_equal(en_launch_devices(seats, 2, &l), 1);
	assert_non_null(strstr(l.finding[1].text, "Rank 1 of 2 on b sees no GPU (nor does 1 "
			       "other); that host has 8. Run nvidia-smi"));
	seats[0].has_visible = true;
	assert_int_equal(en_launch_devices(seats, 2, &l), 1);
	assert_non_null(strstr(l.finding[2].text, "Rank 0 of 2 on a sees no GPU (nor does 1 "
			       "other): CUDA_VISIBLE_DEVICES is \"\". Unset it"));
}

/* Where no launcher says it, the hosts of the others do. */
static void a_local_rank_may_come_from_the_hosts(void **state)
{
	const struct en_environ env = { .pmi_rank = "5", .pmi_size = "8" };
	struct en_launched l;

	(void)state;
	assert_int_equal(en_launch_check(&env, 4, -1, &l), 1);
	assert_int_equal(en_launch_check(&env, 4, 1, &l), 0);
	assert_int_equal(l.device, 1);
	assert_int_equal(en_launch_check(&env, 4, 4, &l), 1);
	assert_int_equal(l.finding[0].id, EN_LAUNCH_TOO_FEW_DEVICES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_way_to_start_is_understood),
		cmocka_unit_test(two_ranks_on_one_gpu_are_named),
		cmocka_unit_test(hosts_are_what_they_say_of_themselves),
		cmocka_unit_test(many_seats_are_looked_at),
		cmocka_unit_test(ranks_without_a_gpu_are_named),
		cmocka_unit_test(a_local_rank_may_come_from_the_hosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
