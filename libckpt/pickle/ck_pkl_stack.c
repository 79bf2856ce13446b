/*
 * ck_pkl_stack.c -- the stack of the pickle machine, its marks, and the memo.
 *
 * Nothing reaches below the newest mark.  A memo slot is allocated only below four times
 * the input's length, so that a short stream cannot ask for much memory.
 */
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/pickle/ck_pkl_vm.h"

#define MEMO_SLACK 131072u	/* a short stream may still count its memo from here */

/* ---- stack ---- */

static uint64_t fence(const struct ck_pkl_vm *vm)
{
	return vm->nmarks ? vm->mark[vm->nmarks - 1] : 0;
}

int ck_pkl_push(struct ck_pkl_vm *vm, struct ck_val *v)
{
	if (vm->n == vm->stack_cap) {
		const int rc = ck_grow(&vm->stack, &vm->stack_cap, vm->n + 1,
				       sizeof(struct ck_val *), vm->err);

		if (rc)
			return rc;
	}
	vm->stack[vm->n++] = v;
	return 0;
}

int ck_pkl_need(struct ck_pkl_vm *vm, uint64_t n, struct ck_val ***top_out)
{
	if (vm->n - fence(vm) < n)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT,
				   "an opcode takes %" PRIu64 " values, %" PRIu64 " are there", n,
				   vm->n - fence(vm));
	*top_out = vm->stack + vm->n - n;
	return 0;
}

int ck_pkl_push_mark(struct ck_pkl_vm *vm)
{
	const int rc = ck_grow(&vm->mark, &vm->mark_cap, vm->nmarks + 1, sizeof(*vm->mark),
			       vm->err);

	if (!rc)
		vm->mark[vm->nmarks++] = vm->n;
	return rc;
}

int ck_pkl_take_mark(struct ck_pkl_vm *vm, struct ck_val ***item_out, uint64_t *n_out)
{
	if (!vm->nmarks)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "an opcode wants a MARK and there is none");
	*item_out = vm->stack ? vm->stack + fence(vm) : NULL;
	*n_out = vm->n - fence(vm);
	vm->n = fence(vm);
	vm->nmarks--;
	return 0;
}

int ck_pkl_pop(struct ck_pkl_vm *vm)
{
	vm->doc->notes |= CK_PKL_NOTE_POP;
	if (vm->n > fence(vm)) {
		vm->n--;
		return 0;
	}
	if (!vm->nmarks)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "POP on an empty stack");
	vm->nmarks--;
	return 0;
}

/* ---- memo ---- */

static int memo_put(struct ck_pkl_vm *vm, uint64_t i)
{
	struct ck_val **top = NULL;
	int rc = ck_pkl_need(vm, 1, &top);

	if (rc)
		return rc;
	if (i >= vm->limits->pickle_nodes)
		return ck_fail_limit(vm->err, vm->where, vm->op, "pickle_nodes",
				     vm->limits->pickle_nodes, "memo index %" PRIu64, i);
	if (i >= MEMO_SLACK && i / 4 >= vm->cur.off + vm->cur.left)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT,
				   "memo index %" PRIu64 " in a stream of %" PRIu64 " bytes", i,
				   vm->cur.off + vm->cur.left);
	if (i >= vm->memo_cap) {
		const uint64_t old = vm->memo_cap;

		rc = ck_grow(&vm->memo, &vm->memo_cap, i + 1, sizeof(struct ck_val *), vm->err);
		if (rc)
			return rc;
		memset(vm->memo + old, 0, (vm->memo_cap - old) * sizeof(struct ck_val *));
	}
	vm->memo[i] = top[0];
	return 0;
}

int ck_pkl_recall(struct ck_pkl_vm *vm, uint64_t i)
{
	if (i >= vm->memo_cap || !vm->memo[i])
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "memo entry %" PRIu64 " was never set", i);
	return ck_pkl_push(vm, vm->memo[i]);
}

int ck_pkl_memoize(struct ck_pkl_vm *vm, uint64_t i)
{
	const bool fresh = i >= vm->memo_cap || !vm->memo[i];
	int rc = memo_put(vm, i);

	if (!rc && fresh)
		vm->memo_next++;
	return rc;
}
