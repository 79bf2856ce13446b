/*
 * kn_cu_cudnn.h -- cuDNN's backend API, as little of it as attention needs.
 *
 * A graph is built by calls that stop doing anything once one has failed; kn_cu_dnn_plan() then
 * says so.  Tensors have four dimensions.  Only kn_cu_cudnn.c and kn_cu_attn_cudnn.c see cuDNN.
 */
#ifndef KN_CU_CUDNN_H
#define KN_CU_CUDNN_H

#include <cudnn.h>
#include <stddef.h>
#include <stdint.h>

#define KN_CU_DNN_OPS 40u   /* of a graph */
#define KN_CU_DNN_MADE 200u /* descriptors of a graph */
#define KN_CU_DNN_IDS 20u   /* tensors that are memory, of a graph */

struct kn_cu_dnn_api {
	size_t version; /* 91900 is 9.19.0 */
	size_t (*get_version)(void);
	const char *(*error_string)(cudnnStatus_t status);
	void (*last_error)(char *text, size_t bytes);
	cudnnStatus_t (*handle_new)(cudnnHandle_t *out);
	cudnnStatus_t (*handle_free)(cudnnHandle_t handle);
	cudnnStatus_t (*stream)(cudnnHandle_t handle, cudaStream_t stream);
	cudnnStatus_t (*create)(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out);
	cudnnStatus_t (*destroy)(cudnnBackendDescriptor_t d);
	cudnnStatus_t (*set)(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			     cudnnBackendAttributeType_t type, int64_t count, const void *of);
	cudnnStatus_t (*get)(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			     cudnnBackendAttributeType_t type, int64_t room, int64_t *count,
			     void *of);
	cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t d);
	cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
				 cudnnBackendDescriptor_t pack);
};

/* Loaded on first use; NULL: there is none, and '*why_out' says why. */
const struct kn_cu_dnn_api *kn_cu_dnn_load(const char **why_out);

typedef cudnnBackendDescriptor_t kn_cu_dnn_t;

struct kn_cu_dnn_graph {
	const struct kn_cu_dnn_api *api;
	kn_cu_dnn_t made[KN_CU_DNN_MADE];
	kn_cu_dnn_t op[KN_CU_DNN_OPS];
	size_t nmade, nops;
	int64_t next_id; /* of tensors that are never in memory */
	cudnnStatus_t rc;
	const char *doing; /* when rc was set */
};

enum kn_cu_dnn_kind {
	KN_CU_DNN_MEMORY,
	KN_CU_DNN_INSIDE, /* never in memory */
	KN_CU_DNN_SCALAR, /* one number, on the host */
};

struct kn_cu_dnn_shape {
	int64_t dim[4], stride[4];
};

void kn_cu_dnn_begin(struct kn_cu_dnn_graph *g, const struct kn_cu_dnn_api *api);
/* 'id' counts for MEMORY and SCALAR only. */
kn_cu_dnn_t kn_cu_dnn_tensor(struct kn_cu_dnn_graph *g, enum kn_cu_dnn_kind kind, int64_t id,
			     cudnnDataType_t type, const struct kn_cu_dnn_shape *shape);
/* y = mode(x, b, t); b and t may be NULL. */
void kn_cu_dnn_point(struct kn_cu_dnn_graph *g, cudnnPointwiseMode_t mode, kn_cu_dnn_t x,
		     kn_cu_dnn_t b, kn_cu_dnn_t t, kn_cu_dnn_t y);
/* y = the index of each element along 'axis' */
void kn_cu_dnn_index(struct kn_cu_dnn_graph *g, int64_t axis, kn_cu_dnn_t x, kn_cu_dnn_t y);
/* y = x reduced along the dimensions in which y is smaller */
void kn_cu_dnn_reduce(struct kn_cu_dnn_graph *g, cudnnReduceTensorOp_t op, kn_cu_dnn_t x,
		      kn_cu_dnn_t y);
void kn_cu_dnn_matmul(struct kn_cu_dnn_graph *g, kn_cu_dnn_t a, kn_cu_dnn_t b, kn_cu_dnn_t c);
void kn_cu_dnn_reshape(struct kn_cu_dnn_graph *g, kn_cu_dnn_t x, kn_cu_dnn_t y);

struct kn_cu_dnn_plan {
	kn_cu_dnn_t graph, config, plan;
	size_t work;
};

/*
 * The first of cuDNN's suggestions that can be built; with 'fixed' none that is marked as not
 * deterministic.  Releases the graph either way.  Returns 0 or -1 with 'why' filled.
 */
int kn_cu_dnn_plan(struct kn_cu_dnn_graph *g, cudnnHandle_t handle, int fixed,
		   struct kn_cu_dnn_plan *plan_out, char *why, size_t size);
void kn_cu_dnn_plan_release(const struct kn_cu_dnn_api *api, struct kn_cu_dnn_plan *plan);

/* Runs it with at[i] as the tensor of ids[i]. */
cudnnStatus_t kn_cu_dnn_run(const struct kn_cu_dnn_api *api, cudnnHandle_t handle,
			    const struct kn_cu_dnn_plan *plan, const int64_t *ids, void *const *at,
			    size_t n, void *work, cudaStream_t stream);

#endif
