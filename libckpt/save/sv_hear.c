/*
 * sv_hear.c -- how a rank other than 0 hears of the end of a save: from what rank 0 leaves, since
 * ranks do not talk.
 *
 * The step stands (its folder has the inode that 'data' had), or put-00000 has the reason for which
 * rank 0 gave up.  Rank 0 may have gone on to the next save, which takes that file away: then
 * neither the step nor its data are there.
 */
#include <inttypes.h>
#include <time.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/save/ck_saver.h"

#define POLL_NS 10000000L
#define LOOK_SECONDS 0.1	/* between questions who has ended */
#define CACHED_MS 60000u	/* for so long a network file system may not see a new name */

void ck_saver_ask_gone(struct ckpt_saver *sv)
{
	const double now = ck_clock_seconds();

	if (!sv->opts.look || now < sv->next_look)
		return;
	sv->next_look = now + LOOK_SECONDS;
	sv->opts.look(sv->opts.look_arg, sv->looked);
	for (uint32_t r = 0; r < sv->opts.nranks; r++)
		sv->gone[r] = sv->looked[r];
}

int ck_saver_ask_new(struct ckpt_saver *sv, struct ckpt_err *err)
{
	const uint32_t n = sv->opts.nranks;

	if (!sv->opts.look)
		return 0;
	sv->looked = ck_zalloc(n);
	sv->gone = ck_zalloc(n * sizeof(*sv->gone));
	sv->save.gone = sv->gone;
	return sv->looked && sv->gone ? 0 : ck_fail_nomem(err, "ranks", n);
}

bool ck_saver_given_up(const struct ckpt_saver *sv, int *rc_out, struct ckpt_err *err)
{
	struct sv_part first = { 0 };
	char *put = ck_asprintf("%s.zckpt-partial/put-%05u", sv->dst, 0);
	const bool is = put && !ck_sv_part_read(&first, put, NULL) && first.code;

	if (is)
		*rc_out = ck_fail(err, (enum ckpt_code)first.code, sv->dst, CKPT_NO_OFFSET,
				  "rank 0 abandoned this save: %.400s", first.why);
	ck_sv_part_release(&first);
	ck_free(put);
	return is;
}

static bool is_ours(const struct ckpt_saver *sv, const char *path)
{
	struct stat st;

	return !ck_sys.stat(path, &st) && st.st_ino == sv->inode;
}

enum seen { SEEN_END, SEEN_DATA, SEEN_NOTHING };

static enum seen look_for_end(const struct ckpt_saver *sv, const char *data, int *rc_out,
			      struct ckpt_err *err)
{
	*rc_out = 0;
	if (is_ours(sv, sv->dst) || ck_saver_given_up(sv, rc_out, err))
		return SEEN_END;
	if (is_ours(sv, data))
		return SEEN_DATA;
	/* It may have been renamed, or removed, between the two looks. */
	return is_ours(sv, sv->dst) || ck_saver_given_up(sv, rc_out, err) ? SEEN_END :
	       SEEN_NOTHING;
}

static int fail_late(const struct ckpt_saver *sv, uint64_t ms, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_INCOMPLETE, sv->dst, CKPT_NO_OFFSET,
		       "rank 0 did not put the step in place within %" PRIu64 " ms: is it "
		       "alive?",
		       ms);
}

static int fail_dead(const struct ckpt_saver *sv, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_INCOMPLETE, sv->dst, CKPT_NO_OFFSET,
		       "rank 0 did not put the step in place: it has exited");
}

static int fail_gone(const struct ckpt_saver *sv, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_INCOMPLETE, sv->dst, CKPT_NO_OFFSET,
		       "the step and its data are missing: rank 0 abandoned this save and "
		       "continued, or the step was removed");
}

int ck_saver_hear_end(struct ckpt_saver *sv, double until, bool *late_out, struct ckpt_err *err)
{
	const struct timespec nap = { .tv_nsec = POLL_NS };
	const uint64_t ms = 2 * (uint64_t)sv->opts.timeout_ms;
	const double most = ck_clock_seconds() + (double)ms / 1e3;
	const double grace = (double)ck_min_u64(sv->opts.timeout_ms, CACHED_MS) / 1e3;
	char *data = ck_asprintf("%s.zckpt-partial/data", sv->dst);
	double gone = 0;
	enum seen seen = SEEN_DATA;
	bool dead = false;
	int rc = data ? 0 : ck_fail_nomem(err, "a path", 0);

	*late_out = false;
	/* 'dead' is older than the look: what rank 0 did before its end is seen */
	while (!rc && (seen = look_for_end(sv, data, &rc, err)) != SEEN_END) {
		const double now = ck_clock_seconds();

		gone = seen == SEEN_DATA ? 0 : gone > 0 ? gone : now;
		*late_out = until > 0 && now >= until;
		if (*late_out)
			rc = ck_fail(err, CKPT_E_BUSY, sv->dst, CKPT_NO_OFFSET,
				     "rank 0 has not put the step in place yet");
		else if (dead)
			rc = fail_dead(sv, err);
		else if (gone > 0 && now >= gone + grace)
			rc = fail_gone(sv, err);
		else if (now >= most)
			rc = fail_late(sv, ms, err);
		else
			nanosleep(&nap, NULL);
		ck_saver_ask_gone(sv);
		dead = sv->gone && sv->gone[0];
	}
	ck_free(data);
	return rc;
}

int ckpt_save_pending(const struct ckpt_saver *sv)
{
	return sv->state == CK_SAVER_CLOSING || (sv->state == CK_SAVER_ENDED && !sv->reported);
}
