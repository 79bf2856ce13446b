/* ck_lora.c -- see ck_lora.h. */
#include "libckpt/convert/ck_lora.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define BLOCK 4096	/* elements that are made at once */
#define LEFT_MOST 65536	/* elements of the left factor that are read at once */

/* A right factor in memory: r rows of 'cols'. */
struct factor {
	struct factor *next;
	const struct ck_lora_part *part;
	uint64_t bytes;
	uint32_t users;
	float *p;
};

/* What one call works with. */
struct work {
	struct work *next;
	double *left;
	uint64_t left_cap;
	double w[BLOCK], sum[BLOCK];
};

struct ck_lora {
	struct ck_change change;
	const struct ck_index *ix;
	struct ck_reader *reader;
	struct ck_lora_part *part;
	uint32_t *of;		/* by state of the base: number + 1 of its part */
	uint64_t nstates;
	pthread_mutex_t lock;	/* around all below */
	pthread_cond_t left_one;
	struct factor *factor;
	uint64_t bytes, most;
	struct work *idle;
};

/* ------------------------------------------------------------ the right factor */

static void drop_factor(struct ck_lora *l, struct factor **at)
{
	struct factor *f = *at;

	*at = f->next;
	l->bytes -= f->bytes;
	ck_free(f->p);
	ck_free(f);
}

/* Make room, if those in use let it be. */
static bool make_room(struct ck_lora *l, uint64_t bytes)
{
	struct factor **at = &l->factor;

	while (*at && l->bytes + bytes > l->most)
		if ((*at)->users)
			at = &(*at)->next;
		else
			drop_factor(l, at);
	return !l->factor || l->bytes + bytes <= l->most;
}

static int read_state(struct ck_lora *l, uint32_t state, uint64_t first, uint64_t n,
		      enum ckpt_dtype dtype, void *dst, void *scratch, struct ckpt_err *err)
{
	return ck_reader_read(l->reader, &l->ix->state[state], first, n, dtype, dst, scratch, NULL,
			      err);
}

/* B, cols x r, becomes r x cols. */
static int load_flipped(struct ck_lora *l, const struct ck_lora_part *p, float *to, void *scratch,
			struct ckpt_err *err)
{
	const uint64_t step = ck_max_u64(1, LEFT_MOST / p->r);
	float *rows = ck_alloc_array(step * p->r, sizeof(*rows));
	int rc = rows ? 0 : ck_fail_nomem(err, "a matrix of an adapter", step * p->r);

	for (uint64_t j = 0; !rc && j < p->cols; j += step) {
		const uint64_t n = ck_min_u64(step, p->cols - j);

		rc = read_state(l, p->left, j * p->r, n * p->r, CKPT_F32, rows, scratch, err);
		for (uint64_t i = 0; !rc && i < n; i++)
			for (uint64_t k = 0; k < p->r; k++)
				to[k * p->cols + j + i] = rows[i * p->r + k];
	}
	ck_free(rows);
	return rc;
}

static int load_factor(struct ck_lora *l, const struct ck_lora_part *p, void *scratch,
		       struct factor **out, struct ckpt_err *err)
{
	struct factor *f = ck_zalloc(sizeof(*f));
	int rc = 0;

	if (f)
		f->p = ck_alloc_array(p->r * p->cols, sizeof(*f->p));
	if (!f || !f->p)
		rc = ck_fail_nomem(err, "a matrix of an adapter", p->r * p->cols * sizeof(float));
	if (!rc)
		rc = p->flipped ? load_flipped(l, p, f->p, scratch, err) :
		     read_state(l, p->right, 0, p->r * p->cols, CKPT_F32, f->p, scratch, err);
	if (rc) {
		if (f)
			ck_free(f->p);
		ck_free(f);
		return rc;
	}
	f->part = p;
	f->bytes = p->r * p->cols * sizeof(*f->p);
	*out = f;
	return 0;
}

/* Locked while it loads: who waits wants the same one, or memory. */
static int take_factor(struct ck_lora *l, const struct ck_lora_part *p, void *scratch,
		       struct factor **out, struct ckpt_err *err)
{
	const uint64_t bytes = p->r * p->cols * sizeof(float);
	struct factor *f = NULL;
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		for (f = l->factor; f && f->part != p; f = f->next)
			;
		if (f || make_room(l, bytes))
			break;
		pthread_cond_wait(&l->left_one, &l->lock);
	}
	if (!f) {
		rc = load_factor(l, p, scratch, &f, err);
		if (!rc) {
			f->next = l->factor;
			l->factor = f;
			l->bytes += f->bytes;
		}
	}
	if (!rc)
		f->users++;
	pthread_mutex_unlock(&l->lock);
	*out = f;
	return rc;
}

static void leave_factor(struct ck_lora *l, struct factor *f)
{
	pthread_mutex_lock(&l->lock);
	f->users--;
	pthread_cond_broadcast(&l->left_one);
	pthread_mutex_unlock(&l->lock);
}

/* ------------------------------------------------------------------ the work */

static struct work *take_work(struct ck_lora *l)
{
	struct work *w;

	pthread_mutex_lock(&l->lock);
	w = l->idle;
	if (w)
		l->idle = w->next;
	pthread_mutex_unlock(&l->lock);
	return w ? w : ck_zalloc(sizeof(*w));
}

static void leave_work(struct ck_lora *l, struct work *w)
{
	pthread_mutex_lock(&l->lock);
	w->next = l->idle;
	l->idle = w;
	pthread_mutex_unlock(&l->lock);
}

/* Rows [row, row + n) of the left factor, r numbers each. */
static int read_left(struct ck_lora *l, const struct ck_lora_part *p, struct work *w, uint64_t row,
		     uint64_t n, void *scratch, struct ckpt_err *err)
{
	double *column;
	int rc = 0;

	if (n * p->r + n > w->left_cap) {
		ck_free(w->left);
		w->left_cap = n * p->r + n;
		w->left = ck_alloc_array(w->left_cap, sizeof(*w->left));
		if (!w->left) {
			w->left_cap = 0;
			return ck_fail_nomem(err, "a matrix of an adapter", n * p->r);
		}
	}
	if (!p->flipped)
		return read_state(l, p->left, row * p->r, n * p->r, CKPT_F64, w->left, scratch,
				  err);
	column = w->left + n * p->r;
	for (uint64_t k = 0; !rc && k < p->r; k++) {
		rc = read_state(l, p->right, k * p->rows + row, n, CKPT_F64, column, scratch, err);
		for (uint64_t i = 0; !rc && i < n; i++)
			w->left[i * p->r + k] = column[i];
	}
	return rc;
}

/* w[0 .. n) += scale * (left x right[.][col ..]); four terms at a time, in the order of k. */
static void add_product(double *restrict w, double *restrict sum, const double *left,
			const float *right, const struct ck_lora_part *p, uint64_t col, uint64_t n)
{
	const uint64_t cols = p->cols;
	uint64_t k = 0;

	memset(sum, 0, n * sizeof(*sum));
	for (; k + 4 <= p->r; k += 4) {
		const float *restrict a = right + k * cols + col, *restrict b = a + cols;
		const float *restrict c = b + cols, *restrict d = c + cols;
		const double la = left[k], lb = left[k + 1], lc = left[k + 2], ld = left[k + 3];

		for (uint64_t j = 0; j < n; j++)
			sum[j] = (((sum[j] + la * (double)a[j]) + lb * (double)b[j]) +
				  lc * (double)c[j]) + ld * (double)d[j];
	}
	for (; k < p->r; k++)
		for (uint64_t j = 0; j < n; j++)
			sum[j] += left[k] * (double)right[k * cols + col + j];
	for (uint64_t j = 0; j < n; j++)
		w[j] += p->scale * sum[j];
}

/* Elements of rows from 'row' on, whose left factor is in w->left. */
static int make_block(const struct ck_lora_part *p, const struct factor *f, struct work *w,
		      uint64_t row, uint64_t first, uint64_t n)
{
	for (uint64_t at = 0; at < n;) {
		const uint64_t i = (first + at) / p->cols, j = (first + at) % p->cols;
		const uint64_t m = ck_min_u64(p->cols - j, n - at);

		add_product(w->w + at, w->sum, w->left + (i - row) * p->r, f->p, p, j, m);
		at += m;
	}
	return 0;
}

struct target {
	struct ck_reader *from;
	const struct ck_state *state;
	enum ckpt_dtype dtype;
	uint8_t *dst;
	void *scratch;
	uint64_t *overflows;
};

static int make_rows(struct ck_lora *l, const struct ck_lora_part *p, const struct factor *f,
		     struct work *w, struct target *t, uint64_t first, uint64_t count,
		     struct ckpt_err *err)
{
	const uint64_t row = first / p->cols, last = (first + count - 1) / p->cols;
	int rc = read_left(l, p, w, row, last - row + 1, t->scratch, err);

	for (uint64_t n; !rc && count; first += n, count -= n) {
		n = ck_min_u64(BLOCK, count);
		rc = ck_reader_read(t->from, t->state, first, n, CKPT_F64, w->w, t->scratch, NULL,
				    err);
		if (!rc)
			rc = make_block(p, f, w, row, first, n);
		if (!rc)
			kn_cast(t->dst, ck_read_kn(t->dtype), w->w, KN_F64, n, t->overflows);
		t->dst += n * (ckpt_dtype_bits(t->dtype) / 8);
	}
	return rc;
}

static int make(struct ck_lora *l, const struct ck_lora_part *p, struct target *t, uint64_t first,
		uint64_t count, struct ckpt_err *err)
{
	const uint64_t rows = ck_max_u64(1, LEFT_MOST / p->r);
	struct factor *f = NULL;
	struct work *w = take_work(l);
	int rc = w ? take_factor(l, p, t->scratch, &f, err) :
		     ck_fail_nomem(err, "work space", sizeof(*w));

	while (!rc && count) {
		const uint64_t upto = (first / p->cols + rows) * p->cols;
		const uint64_t n = ck_min_u64(upto - first, count);

		rc = make_rows(l, p, f, w, t, first, n, err);
		first += n;
		count -= n;
	}
	if (f)
		leave_factor(l, f);
	if (w)
		leave_work(l, w);
	return rc;
}

/* ---------------------------------------------------------------- the change */

static bool changes(const void *arg, uint32_t state)
{
	const struct ck_lora *l = arg;

	return state < l->nstates && l->of[state];
}

static int read_changed(void *arg, struct ck_reader *from, uint32_t state, uint64_t first,
			uint64_t count, enum ckpt_dtype dtype, void *dst, void *scratch,
			uint64_t *overflows, struct ckpt_err *err)
{
	struct ck_lora *l = arg;
	const struct ck_lora_part *p = &l->part[l->of[state] - 1];
	struct target t = {
		.from = from, .state = ck_reader_state(from, state), .dtype = dtype, .dst = dst,
		.scratch = scratch, .overflows = overflows,
	};

	if (p->left == CK_NONE)
		return ck_reader_read(l->reader, &l->ix->state[p->instead], first, count, dtype,
				      dst, scratch, overflows, err);
	return count ? make(l, p, &t, first, count, err) : 0;
}

int ck_lora_new(const struct ck_index *adapter, const struct ckpt_limits *limits,
		const struct ck_lora_part *part, uint64_t n, uint64_t nstates,
		uint64_t cache_bytes, struct ck_lora **out, struct ckpt_err *err)
{
	struct ck_lora *l = ck_zalloc(sizeof(*l));
	int rc;

	if (!l)
		return ck_fail_nomem(err, "a merge", sizeof(*l));
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->left_one, NULL);
	l->ix = adapter;
	l->nstates = nstates;
	l->most = cache_bytes;
	l->change = (struct ck_change){ .changes = changes, .read = read_changed, .arg = l };
	l->part = ck_alloc_array(n + 1, sizeof(*l->part));
	l->of = ck_zalloc((nstates + 1) * sizeof(*l->of));
	rc = l->part && l->of ? ck_reader_new(adapter, limits, cache_bytes, &l->reader, err) :
	     ck_fail_nomem(err, "a merge", n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		l->part[i] = part[i];
		l->of[part[i].base] = (uint32_t)i + 1;
	}
	if (rc)
		ck_lora_free(l);
	else
		*out = l;
	return rc;
}

const struct ck_change *ck_lora_change(const struct ck_lora *lora)
{
	return lora ? &lora->change : NULL;
}

void ck_lora_free(struct ck_lora *l)
{
	struct work *w;

	if (!l)
		return;
	while (l->factor)
		drop_factor(l, &l->factor);
	while ((w = l->idle)) {
		l->idle = w->next;
		ck_free(w->left);
		ck_free(w);
	}
	ck_reader_free(l->reader);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->left_one);
	ck_free(l->part);
	ck_free(l->of);
	ck_free(l);
}
