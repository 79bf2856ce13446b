/*
 * sv_link.c -- frozen files that an earlier step has as well: links to its files take their place.
 *
 * Nothing in such a file is of one saving (docs/formats/native.md), so a file of that step with the
 * header that ours would have holds the same tensors in the same places.  Its manifest has the sums
 * of its pieces.  All frozen files of a save are links, or none: in equal shares each rank comes to
 * the same answer, since it is part of what their records must agree on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/save/ck_save.h"

#define WINDOW ((uint64_t)1 << 20)

struct looking {
	struct sv_save *s;
	const char *dir;	/* of the earlier step */
	struct ck_index ix;
	struct ck_findings findings;
	struct ck_fdpool *pool;
	struct ck_hasher *seen;	/* what the answer follows from */
	struct stat root;
};

bool ck_sv_is_frozen(const struct sv_save *s, const struct ck_plan *plan, uint32_t file)
{
	const char *name = ck_sv_spec_local(&s->spec, plan->file[file].name);

	return s->spec.want.step.target == s->spec.formats->native && name &&
	       !strncmp(name, "frozen-", 7);
}

bool ck_sv_is_linked(const struct sv_save *s, uint32_t file)
{
	return s->link_from && ck_sv_is_frozen(s, &s->spec.plan, file);
}

/* ---- has the earlier step this file? ---- */

static const struct ck_stated_head *head_of(const struct looking *l, const char *name)
{
	for (uint64_t i = 0; i < l->ix.nstated_heads; i++) {
		const struct ck_stated_head *head = &l->ix.stated_head[i];

		if (!strcmp(ck_fs_base(l->ix.source[head->source].path), name))
			return head;
	}
	return NULL;
}

/* What is no file of this file system cannot have a further name there. */
static bool can_be_linked(const struct looking *l, const char *path)
{
	struct stat st;

	return !ck_sys.lstat(path, &st) && S_ISREG(st.st_mode) && st.st_dev == l->root.st_dev;
}

/* The bytes before its data are those that this save would write. */
static int has_head(const struct looking *l, const struct ck_outfile *file, bool *same_out,
		    struct ckpt_err *err)
{
	const struct ck_seg *seg = &l->s->spec.plan.seg[file->seg];
	const struct ck_stated_head *head =
		head_of(l, ck_sv_spec_local(&l->s->spec, file->name));
	const struct ck_source *source = head ? &l->ix.source[head->source] : NULL;
	uint8_t *bytes;
	int rc;

	*same_out = false;
	if (!source || head->bytes != seg->bytes || source->bytes != file->bytes ||
	    !ck_hash128_equal(head->hash, ck_hash128(seg->text, seg->bytes)) ||
	    !can_be_linked(l, source->path))
		return 0;
	bytes = ck_alloc(seg->bytes);
	if (!bytes)
		return ck_fail_nomem(err, "a header", seg->bytes);
	rc = ck_src_read(source->src, 0, bytes, seg->bytes, err);
	*same_out = !rc && !memcmp(bytes, seg->text, seg->bytes);
	ck_free(bytes);
	return rc;
}

/* ---- the sums of its pieces ---- */

static int by_place(const void *a, const void *b)
{
	const struct ck_stated_sum *x = a, *y = b;

	if (x->state != y->state)
		return x->state < y->state ? -1 : 1;
	return (x->first > y->first) - (x->first < y->first);
}

/* NULL: that step has no such piece, or does not know its sum. */
static const struct ck_stated_sum *sum_of(const struct looking *l, const struct ck_seg *seg,
					  uint64_t count)
{
	const struct ck_index *ix = &l->s->spec.ix;
	const struct ck_state *mine = &ix->state[seg->state];
	struct ck_stated_sum key = { .first = seg->first };
	const struct ck_stated_sum *sum;
	uint32_t tensor;

	if (!ck_index_find(&l->ix, ix->tensor[mine->tensor].name, &tensor))
		return NULL;
	key.state = ck_index_state_find(&l->ix, tensor, mine->name);
	if (key.state == CK_NONE || !l->ix.nstated_sums)
		return NULL;
	/* the manifest's order is that of states and pieces */
	sum = bsearch(&key, l->ix.stated_sum, l->ix.nstated_sums, sizeof(key), by_place);
	return sum && sum->count == count ? sum : NULL;
}

/* Of a file that this rank links: its elements count as put, with these sums. */
static int count_as_put(struct sv_save *s, const struct ck_seg *seg, uint64_t count,
			struct ck_hash128 sum, struct ckpt_err *err)
{
	struct sv_part *p = &s->part;
	int rc = ck_grow(&p->range, &p->range_cap, p->nranges + 1, sizeof(*p->range), err);

	if (!rc)
		rc = ck_grow(&p->term, &p->term_cap, p->nterms + 1, sizeof(*p->term), err);
	if (rc)
		return rc;
	p->range[p->nranges++] = (struct sv_range){
		.first = seg->first, .count = count, .state = seg->state,
	};
	p->term[p->nterms++] = (struct sv_term){
		.first = seg->first, .sum = sum, .state = seg->state,
	};
	return 0;
}

static int take_sums(struct looking *l, uint32_t number, bool *all_out, struct ckpt_err *err)
{
	const struct ck_plan *plan = &l->s->spec.plan;
	const struct ck_outfile *file = &plan->file[number];
	int rc = 0;

	*all_out = true;
	for (uint64_t i = file->seg + 1; !rc && *all_out && i < file->seg + file->nsegs; i++) {
		const struct ck_seg *seg = &plan->seg[i];
		const bool is_state = seg->kind == CK_SEG_STATE;
		const uint64_t count = is_state ?
				       seg->bytes / (ckpt_dtype_bits(seg->dtype) / 8) : 0;
		const struct ck_stated_sum *sum = is_state ? sum_of(l, seg, count) : NULL;

		*all_out = sum != NULL;
		if (sum)
			ck_hasher_add(l->seen, &sum->sum, sizeof(sum->sum));
		if (sum && ck_sv_is_mine(l->s, number))
			rc = count_as_put(l->s, seg, count, sum->sum, err);
	}
	return rc;
}

/* A step of that name that comes meanwhile has other bytes than the manifest that was read says. */
static int note_stamp(struct looking *l, uint32_t number, struct ckpt_err *err)
{
	const char *name = ck_sv_spec_local(&l->s->spec, l->s->spec.plan.file[number].name);
	char *path = ck_fs_join(l->dir, name);
	struct stat st;
	int rc = 0;

	if (!path)
		return ck_fail_nomem(err, "a path", strlen(name));
	if (ck_sys.lstat(path, &st))
		rc = ck_fail_sys(err, errno, "stat", path);
	else
		ck_stamp_of(&st, &l->s->link_stamp[number]);
	ck_free(path);
	return rc;
}

/* 'path', a link to 'from' or that file itself, is the file that was looked at. */
static int check_stamp(const struct sv_save *s, uint32_t file, const char *from, const char *path,
		       struct ckpt_err *err)
{
	struct ck_stamp now;
	struct stat st;

	if (ck_sys.lstat(path, &st))
		return ck_fail_sys(err, errno, "stat", path);
	ck_stamp_of(&st, &now);
	return ck_stamp_compare(from, &s->link_stamp[file], &now, err);
}

/* ---- the earlier step ---- */

static int open_step(struct looking *l, bool *usable_out, struct ckpt_err *err)
{
	struct ck_input in = {
		.path = &l->dir, .npaths = 1, .threads = 1, .limits = l->s->spec.limits,
		.formats = l->s->spec.formats,
	};
	struct ckpt_err inner = { 0 };
	int rc;

	*usable_out = false;
	if (ck_sys.stat(l->s->opts->root, &l->root))
		return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", l->s->opts->root);
	in.pool = l->pool = ck_fdpool_new(0);
	if (!l->pool)
		return ck_fail_nomem(err, "a pool of files", 0);
	rc = ck_format_open(&in, &l->ix, &l->findings, &inner);
	*usable_out = !rc && in.driver == in.formats->native &&
		      !ck_findings_worst(&l->findings, CKPT_ERROR);
	return ck_err_take_system(rc, &inner, err);
}

static int look_at_files(struct looking *l, bool *same_out, struct ckpt_err *err)
{
	const struct ck_plan *plan = &l->s->spec.plan;
	bool any = false, same = true;
	int rc = 0;

	l->s->link_stamp = ck_alloc_array(plan->nfiles + 1ull, sizeof(*l->s->link_stamp));
	if (!l->s->link_stamp)
		return ck_fail_nomem(err, "a list of files", plan->nfiles);

	for (uint32_t i = 0; !rc && same && i < plan->nfiles; i++) {
		if (!ck_sv_is_frozen(l->s, plan, i))
			continue;
		any = true;
		rc = has_head(l, &plan->file[i], &same, err);
		if (!rc && same)
			rc = take_sums(l, i, &same, err);
		if (!rc && same)
			rc = note_stamp(l, i, err);
	}
	if (!rc && any && same)
		rc = ck_fdpool_check(l->pool, rc, err);
	*same_out = !rc && any && same;
	return rc;
}

/* What the others must see as well, or files would be links to one rank and not to another. */
static void agree(struct looking *l)
{
	ck_hasher_add(l->seen, &l->s->spec.hash, sizeof(l->s->spec.hash));
	if (!l->s->spec.own_cut)
		l->s->spec.hash = ck_hasher_sum(l->seen);
}

void ck_sv_link_forget(struct sv_save *s)
{
	ck_free(s->link_from);
	ck_free(s->link_stamp);
	s->link_from = NULL;
	s->link_stamp = NULL;
	s->part.nranges = s->part.nterms = 0;
}

int ck_sv_link_find(struct sv_save *s, struct ckpt_err *err)
{
	struct looking l = { .s = s };
	char *dir = ck_fs_join(s->opts->root, s->spec.frozen_from);
	bool usable = false, same = false;
	int rc = dir ? ck_index_init(&l.ix, s->spec.limits.memory_bytes, err) :
		 ck_fail_nomem(err, "a path", 0);

	if (rc)
		goto out;
	l.dir = dir;
	l.seen = ck_hasher_new();
	rc = l.seen ? open_step(&l, &usable, err) : ck_fail_nomem(err, "a hash", 0);
	if (!rc && usable)
		rc = look_at_files(&l, &same, err);
	if (same) {
		agree(&l);
		s->link_from = dir;
		dir = NULL;
	} else {
		ck_sv_link_forget(s);
	}
	ck_hasher_free(l.seen);
	ck_index_release(&l.ix);
	ck_findings_release(&l.findings);
	ck_fdpool_free(l.pool);
out:
	ck_free(dir);
	return rc;
}

/* ---- links ---- */

/* Where no link can be had and other ranks count on one. */
static int copy_file(struct sv_save *s, uint32_t file, const char *from, struct ckpt_err *err)
{
	const uint64_t bytes = s->spec.plan.file[file].bytes;
	struct ck_fdpool *pool = ck_fdpool_new(1);
	uint8_t *buf = ck_alloc(WINDOW);
	struct ck_src *src = NULL;
	int rc = pool && buf ? ck_src_open(pool, from, &src, err) :
		 ck_fail_nomem(err, "a buffer", WINDOW);

	if (!rc)
		rc = check_stamp(s, file, from, from, err);
	for (uint64_t at = 0, n; !rc && at < bytes; at += n) {
		n = ck_min_u64(WINDOW, bytes - at);
		rc = ck_src_read(src, at, buf, n, err);
		if (!rc)
			rc = ck_stage_write(s->stage, s->stage_file[file], at, buf, n, err);
	}
	if (pool)
		rc = ck_fdpool_check(pool, rc, err);
	ck_src_close(src);
	ck_free(buf);
	ck_fdpool_free(pool);
	s->written += rc ? 0 : bytes;
	return rc;
}

/* A link that is refused: who alone knows of this file writes it as if none had been asked for. */
static int do_without(struct sv_save *s, uint32_t file, const char *name, const char *from,
		      bool alone, struct ckpt_err *err)
{
	int rc = ck_stage_file(s->stage, name, s->spec.plan.file[file].bytes,
			       &s->stage_file[file], err);

	if (!rc && alone)
		ck_sv_link_forget(s);
	else if (!rc)
		rc = copy_file(s, file, from, err);
	return rc;
}

static int check_link(const struct sv_save *s, uint32_t file, const char *name, const char *from,
		      struct ckpt_err *err)
{
	char *path = ck_fs_join(ck_stage_paths(s->stage)->data, name);
	int rc = path ? check_stamp(s, file, from, path, err) :
		 ck_fail_nomem(err, "a path", strlen(name));

	ck_free(path);
	return rc;
}

int ck_sv_link_file(struct sv_save *s, uint32_t file, struct ckpt_err *err)
{
	const char *name = ck_sv_spec_local(&s->spec, s->spec.plan.file[file].name);
	char *from = ck_fs_join(s->link_from, name);
	bool made = false;
	int rc = from ? ck_stage_file_linked(s->stage, name, from, &s->stage_file[file], &made,
					     err) : ck_fail_nomem(err, "a path", 0);

	if (!rc && made)
		rc = check_link(s, file, name, from, err);
	if (!rc && made)
		s->linked_bytes += s->spec.plan.file[file].bytes;
	else if (!rc)
		rc = do_without(s, file, name, from, s->spec.own_cut, err);
	ck_free(from);
	return rc;
}
