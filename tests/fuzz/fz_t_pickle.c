/* Fuzz target: pickles. What is read is written again and is then the same graph; writing that
 * once more changes no byte. The audit's reading is tried as well. */
#include "tests/fuzz/fz.h"

#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/pickle/ck_pkl.h"
#include "libckpt/pickle/ck_pkl_emit.h"
#include "tests/lib/archive/t_same_graph.h"

struct text {
	char *p;
	uint64_t n;
};

static bool emit(const struct ck_val *root, struct text *t)
{
	struct ckpt_err err = { 0 };

	return fz_ok(ck_pkl_emit(root, fz_limits(), NULL, NULL, &t->p, &t->n, &err), &err,
		     "ck_pkl_emit");
}

static void again(const struct ck_pkl *one, const struct text *t)
{
	struct ck_pkl two = CK_PKL_INIT;
	struct text u = { NULL, 0 };
	struct ckpt_err err = { 0 };
	const char *why;

	if (!fz_ok(ck_pkl_load(&two, t->p, t->n, fz_limits(), 0, "again.pkl", &err), &err,
		   "ck_pkl_load"))
		fz_die("what was written cannot be read: %s", err.msg);
	if (two.used != t->n || two.protocol != 2)
		fz_die("what was written is no whole pickle of protocol 2");
	why = t_graphs_differ(one->root, two.root);
	if (why)
		fz_die("what was written is another value: %s", why);
	if (!emit(two.root, &u) || u.n != t->n || memcmp(u.p, t->p, t->n))
		fz_die("written a second time it is another pickle");
	ck_free(u.p);
	ck_pkl_release(&two);
}

static void run(const uint8_t *p, size_t n, unsigned flags)
{
	struct ck_pkl doc = CK_PKL_INIT;
	struct text t = { NULL, 0 };
	struct ckpt_err err = { 0 };

	if (!fz_ok(ck_pkl_load(&doc, p, n, fz_limits(), flags, "in.pkl", &err), &err,
		   "ck_pkl_load"))
		return;
	if (doc.used > n)
		fz_die("%llu of %zu bytes were used", (unsigned long long)doc.used, n);
	if (emit(doc.root, &t))
		again(&doc, &t);
	ck_free(t.p);
	ck_pkl_release(&doc);
}

void fz_pickle(const uint8_t *p, size_t n)
{
	run(p, n, 0);
	run(p, n, CK_PKL_AUDIT);
}
