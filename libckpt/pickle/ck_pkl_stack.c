/*
 * ck_pkl_stack.c -- the stack of the pickle machine and its marks.
 *
 * Nothing reaches below the newest mark.
 */
#include "libckpt/base/ck_sys.h"
#include "libckpt/pickle/ck_pkl_vm.h"

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
				   "not a pickle, or a damaged one: an opcode takes %" PRIu64
				   " values, the stack has %" PRIu64, n,
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
		return ck_pkl_fail(vm, CKPT_E_CORRUPT,
				   "an opcode needs a MARK, but the stack has none");
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
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "POP is applied to an empty stack");
	vm->nmarks--;
	return 0;
}
