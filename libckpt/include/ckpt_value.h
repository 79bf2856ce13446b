/*
 * ckpt_value.h -- values of a step that are not tensors of the model: counters, scheduler, loss
 * scaler, hyper-parameters, the client's own state, random states.  Part of <ckpt.h>.
 *
 *	struct ckpt_values *v;
 *	int64_t step;
 *	double lr;
 *
 *	if (!ckpt_values_open(ck, rank, 0, &v, &err)) {
 *		ckpt_value_int(v, "global_steps", &step, &err);
 *		ckpt_value_float(v, "param_groups.0.lr", &lr, &err);
 *		ckpt_values_close(v);
 *	}
 *
 * A path is steps joined by dots, from one of four roots:
 *
 *	param_groups  the list of param groups of the torch optimizer, wherever the step keeps it
 *	loss_scaler   its attributes (cur_scale, cur_iter, ...), likewise
 *	optimizer     DeepSpeed's optimizer state as it was saved: of ZeRO the shard of the rank, at
 *	              stage 0 the entry of the model file, of the universal form
 *	              zero/optimizer_state.pt, of a native step the form of stages 1 and 2, of a DCP
 *	              folder {"state": {NAME: {"step": N}}, "param_groups": [...]}
 *	model         the dictionary of the rank's model file, of a native step of rest.pt, of a DCP
 *	              folder what is neither the model's nor the optimizer's
 *
 * Any other path begins in "model": "lr_scheduler.last_batch_iteration" is
 * "model.lr_scheduler.last_batch_iteration", and the empty path is "model".  The values that the
 * client gave DeepSpeed to save are there under its own names.
 *
 * A step is the key of a dictionary (text, or a whole number), the number of an item, from 0, or an
 * attribute of an object.  A dot, a backslash, and a '#', '(' or '{' that a key begins with are
 * preceded by a backslash.  "#3" is item 3 of any container, by position; "()" the arguments that
 * an object is made with, "{}" the state that it gets, of any kind.  No object is made: it is the
 * recorded call.
 *
 * Some paths, and what they are:
 *
 *	"global_steps"                            INT, optimizer steps so far
 *	"lr_scheduler.last_batch_iteration"       INT
 *	"param_groups.0.betas.1"                  FLOAT
 *	"loss_scaler.cur_scale"                   FLOAT
 *	"a\\.b"                                   of the client's dictionary the key "a.b"
 *
 * (The backslash is doubled as in C.)  To list everything, walk: get the path, and for each item
 * below 'n' of a container append a dot and the result of ckpt_value_step().
 *
 * A DCP folder that zckpt wrote has the counts, "ds_config" and "lr_scheduler" in "model" as other
 * steps have.  Of another program's, "global_steps" is its own count of steps, or its optimizer's;
 * other counts are missing, and so are tensors of more than one element.
 *
 * How far the torch optimizer counted is the fact "group.N.step" (ckpt_fact_get()); its place in
 * the values depends on the form.  Elements of tensors here are not compared with checksums.
 */
#ifndef CKPT_VALUE_H
#define CKPT_VALUE_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a value is, named after Python's types.  The numbers are pinned. */
enum ckpt_value_kind {
	CKPT_VALUE_NONE = 1,	/* None */
	CKPT_VALUE_BOOL = 2,	/* 'i' is 0 or 1 */
	CKPT_VALUE_INT = 3,	/* within 64 bits */
	CKPT_VALUE_BIGINT = 4,	/* beyond 64 bits: 'bytes' in two's complement, little endian */
	CKPT_VALUE_FLOAT = 5,	/* a double: 'f' */
	CKPT_VALUE_STRING = 6,	/* UTF-8 with a NUL after its end; may contain NUL */
	CKPT_VALUE_BYTES = 7,
	CKPT_VALUE_LIST = 8,	/* or tuple, set */
	CKPT_VALUE_DICT = 9,
	CKPT_VALUE_TENSOR = 10,
	CKPT_VALUE_OBJECT = 11,	/* a call: 'bytes' is the name of what is called */
	CKPT_VALUE_NAME = 12,	/* of a class or function, or torch.float16: 'bytes' */
};

/*
 * A tensor of at most so many bytes, in at most so many of its storage, comes with its elements.
 * For a larger one 'bytes' is NULL; type and shape are given.  Counters and random states are
 * small.
 */
#define CKPT_VALUE_TENSOR_BYTES ((uint64_t)1 << 20)

/*
 * What is at a path.  Which fields count depends on 'kind'; the others are 0.  Pointers are lent
 * until ckpt_values_close().
 */
struct ckpt_value {
	enum ckpt_value_kind kind;
	int64_t i;		/* of BOOL and INT; of a tensor of one whole number */
	double f;		/* of BOOL, INT, FLOAT; of a tensor of one number.  An INT beyond
				   2^53 is rounded here, not in 'i' */
	uint64_t n;		/* bytes; items of LIST, pairs of DICT, attributes of OBJECT */
	const void *bytes;	/* of a tensor row-major, little endian, or NULL: it is large */
	enum ckpt_dtype dtype;	/* of TENSOR, as below */
	uint32_t ndim;		/* 0: one element */
	const uint64_t *shape;	/* [ndim] */
	uint64_t numel;		/* the product of the shape */
};

/*
 * The values of one rank.  One thread at a time uses it; several, of the same or of several ranks,
 * may be open at once.
 */
struct ckpt_values;

/*
 * Read the values of a rank: of DeepSpeed's stage 3 and of native steps each rank has its own model
 * file, of other steps all have one; shards of the optimizer are each rank's.  A rank beyond the
 * world of the step gets those of rank modulo world, as ckpt_reshard() does it.  'flags' is 0 or
 * CKPT_LOAD_DESPITE_FINDINGS (ckpt_load.h).
 *
 * Cost: one or two pickles are read and kept, their memory bounded by the limits that 'ck' was
 * opened with.  '*values_out' is for ckpt_values_close(), before 'ck' is closed.
 * Returns 0 or the negative of
 *	CKPT_E_UNSUPPORTED  the checkpoint is not a step (of DeepSpeed, universal, native or DCP)
 *	CKPT_E_INCOMPLETE   the model file of the rank is missing
 *	the code of the first finding that stops it, and those of reading.
 */
CKPT_API int ckpt_values_open(const struct ckpt *ck, uint32_t rank, unsigned flags,
			      struct ckpt_values **values_out, struct ckpt_err *err);
/* NULL is fine. */
CKPT_API void ckpt_values_close(struct ckpt_values *values);

/*
 * The value at 'path' (NULL = "").  One thread at a time.  Reads from files for the elements of a
 * tensor only.  Returns 0 or the negative of
 *	CKPT_E_NOTFOUND     there is none; the message says where the path ends
 *	CKPT_E_USAGE        a backslash at the end, an empty step
 *	CKPT_E_UNSUPPORTED  a tensor of elements below 8 bits or with a lazy conjugation or negation
 *	CKPT_E_IO, CKPT_E_TRUNCATED, CKPT_E_CORRUPT, CKPT_E_NOMEM
 */
CKPT_API int ckpt_value_get(struct ckpt_values *values, const char *path, struct ckpt_value *out,
			    struct ckpt_err *err);

/*
 * The step that leads from the container at 'path' to its item number 'item', from 0: a key, an
 * attribute, a number, with the backslashes that it needs in a path, or "#item" where the key is
 * neither text nor a whole number.  '*step_out' is lent until
 * ckpt_values_close().  CKPT_E_USAGE past the end or where there is no container, and as
 * ckpt_value_get().
 */
CKPT_API int ckpt_value_step(struct ckpt_values *values, const char *path, uint64_t item,
			     const char **step_out, struct ckpt_err *err);

/*
 * A number: ckpt_value_int() reads a whole one (BOOL, INT, a FLOAT without a fraction, a tensor of
 * one element that is whole), ckpt_value_float() any number.  CKPT_E_MISMATCH for a value that is
 * not a number, and as ckpt_value_get(); '*out' is filled on success, and may be NULL to check
 * only.
 */
CKPT_API int ckpt_value_int(struct ckpt_values *values, const char *path, int64_t *out,
			    struct ckpt_err *err);
CKPT_API int ckpt_value_float(struct ckpt_values *values, const char *path, double *out,
			      struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
