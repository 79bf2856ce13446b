/*
 * ck_pkl_memo.c -- the memo of the pickle machine.
 *
 * Writers count it from 0, so most of it is an array.  But a stream may number as it likes:
 * an index that is high for the length of the stream goes to a hash map by index, so that a
 * short stream cannot ask for much memory.  A map of open addressing, at most half full.
 */
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/pickle/ck_pkl_vm.h"

#define MEMO_SLACK 131072u	/* a short stream may still count its memo from here */

/* Whether the index is in the array: below four times the input's length. */
static bool is_dense(const struct ck_pkl_vm *vm, uint64_t i)
{
	return i < vm->limits->pickle_nodes &&
	       (i < MEMO_SLACK || i / 4 < vm->cur.off + vm->cur.left);
}

/*
 * The slot of index 'i', or the free one where it belongs.  Its place follows from the machine's
 * address too, so that no stream can be made whose indexes all meet in one place.
 */
static struct ck_pkl_far *slot_of(const struct ck_pkl_vm *vm, uint64_t i)
{
	uint64_t at = i + (uint64_t)(uintptr_t)vm;

	at = (at ^ at >> 30) * 0xbf58476d1ce4e5b9u;
	at = (at ^ at >> 27) * 0x94d049bb133111ebu;
	for (at ^= at >> 31;; at++) {
		struct ck_pkl_far *slot = &vm->far[at & (vm->far_cap - 1)];

		if (!slot->value || slot->index == i)
			return slot;
	}
}

static int far_grow(struct ck_pkl_vm *vm)
{
	struct ck_pkl_far *old = vm->far;
	const uint64_t n = vm->far_cap;

	vm->far_cap = n ? 2 * n : 64;
	vm->far = ck_alloc_array(vm->far_cap, sizeof(*vm->far));
	if (!vm->far) {
		vm->far = old;
		vm->far_cap = n;
		return ck_fail_nomem(vm->err, "a pickle's memo", 2 * n);
	}
	memset(vm->far, 0, vm->far_cap * sizeof(*vm->far));
	for (uint64_t k = 0; k < n; k++)
		if (old[k].value)
			*slot_of(vm, old[k].index) = old[k];
	ck_free(old);
	return 0;
}

static int put_far(struct ck_pkl_vm *vm, uint64_t i, struct ck_val *v)
{
	struct ck_pkl_far *slot;

	if (vm->nfar >= vm->limits->pickle_nodes)
		return ck_fail_limit(vm->err, vm->where, vm->op, "pickle_nodes",
				     vm->limits->pickle_nodes, "the pickle has too many memo "
					     "entries");
	if (2 * (vm->nfar + 1) > vm->far_cap) {
		const int rc = far_grow(vm);

		if (rc)
			return rc;
	}
	slot = slot_of(vm, i);
	vm->nfar += !slot->value;
	*slot = (struct ck_pkl_far){ i, v };
	return 0;
}

static int put_dense(struct ck_pkl_vm *vm, uint64_t i, struct ck_val *v)
{
	if (i >= vm->memo_cap) {
		const uint64_t old = vm->memo_cap;
		const int rc = ck_grow(&vm->memo, &vm->memo_cap, i + 1, sizeof(struct ck_val *),
				       vm->err);

		if (rc)
			return rc;
		memset(vm->memo + old, 0, (vm->memo_cap - old) * sizeof(struct ck_val *));
	}
	vm->memo[i] = v;
	return 0;
}

/* NULL if entry 'i' was never set. */
static struct ck_val *memo_get(const struct ck_pkl_vm *vm, uint64_t i)
{
	if (is_dense(vm, i))
		return i < vm->memo_cap ? vm->memo[i] : NULL;
	return vm->far_cap ? slot_of(vm, i)->value : NULL;
}

int ck_pkl_recall(struct ck_pkl_vm *vm, uint64_t i)
{
	struct ck_val *v = memo_get(vm, i);

	if (!v)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "memo entry %" PRIu64 " was never set", i);
	return ck_pkl_push(vm, v);
}

int ck_pkl_memoize(struct ck_pkl_vm *vm, uint64_t i)
{
	const bool fresh = !memo_get(vm, i);
	struct ck_val **top = NULL;
	int rc = ck_pkl_need(vm, 1, &top);

	if (!rc)
		rc = is_dense(vm, i) ? put_dense(vm, i, top[0]) : put_far(vm, i, top[0]);
	if (!rc && fresh)
		vm->memo_next++;
	return rc;
}

void ck_pkl_memo_free(struct ck_pkl_vm *vm)
{
	ck_free(vm->memo);
	ck_free(vm->far);
}
