/*
 * kn_cu_cudnn.c -- cuDNN's backend API: loading it, building graphs and plans, running them.
 *
 * The library is opened when attention first asks for it, so programs start, and run on their
 * own kernels, where there is none.
 */
#if defined(__has_include)
#if __has_include(<cudnn.h>)
#define KN_CU_HAS_CUDNN 1
#endif
#endif

#ifdef KN_CU_HAS_CUDNN

#include "kernels/cuda/kn_cu_cudnn.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- loading */

static struct kn_cu_dnn_api the_api;
static const char *the_why;

static void load(void)
{
	const struct {
		const char *name;
		void **at;
	} of[] = {
		{"cudnnGetVersion", (void **)&the_api.get_version},
		{"cudnnGetErrorString", (void **)&the_api.error_string},
		{"cudnnGetLastErrorString", (void **)&the_api.last_error},
		{"cudnnCreate", (void **)&the_api.handle_new},
		{"cudnnDestroy", (void **)&the_api.handle_free},
		{"cudnnSetStream", (void **)&the_api.stream},
		{"cudnnBackendCreateDescriptor", (void **)&the_api.create},
		{"cudnnBackendDestroyDescriptor", (void **)&the_api.destroy},
		{"cudnnBackendSetAttribute", (void **)&the_api.set},
		{"cudnnBackendGetAttribute", (void **)&the_api.get},
		{"cudnnBackendFinalize", (void **)&the_api.finalize},
		{"cudnnBackendExecute", (void **)&the_api.execute},
	};
	void *lib = dlopen("libcudnn.so.9", RTLD_NOW);

	if (!lib) {
		the_why = "libcudnn.so.9 is not in the library path";
		return;
	}
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		*of[i].at = dlsym(lib, of[i].name);
		if (!*of[i].at) {
			the_why = "libcudnn.so.9 lacks the backend API";
			return;
		}
	}
	the_api.version = the_api.get_version();
}

const struct kn_cu_dnn_api *kn_cu_dnn_load(const char **why_out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	*why_out = the_why;
	return the_why ? NULL : &the_api;
}

/* ---------------------------------------------------------------- graphs */

static void check(struct kn_cu_dnn_graph *g, cudnnStatus_t rc, const char *doing)
{
	if (!rc || g->rc)
		return;
	g->rc = rc;
	g->doing = doing;
}

/* A descriptor that goes with the graph, or NULL. */
static kn_cu_dnn_t make(struct kn_cu_dnn_graph *g, cudnnBackendDescriptorType_t type,
			const char *what)
{
	kn_cu_dnn_t d = NULL;

	if (!g->rc && g->nmade == KN_CU_DNN_MADE)
		check(g, CUDNN_STATUS_INTERNAL_ERROR, what);
	if (!g->rc)
		check(g, g->api->create(type, &d), what);
	if (g->rc)
		return NULL;
	g->made[g->nmade++] = d;
	return d;
}

static void set(struct kn_cu_dnn_graph *g, kn_cu_dnn_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t count, const void *of)
{
	if (!g->rc)
		check(g, g->api->set(d, name, type, count, of), "setting an attribute");
}

static void set_desc(struct kn_cu_dnn_graph *g, kn_cu_dnn_t d, cudnnBackendAttributeName_t name,
		     kn_cu_dnn_t of)
{
	if (of)
		set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &of);
}

static void finish(struct kn_cu_dnn_graph *g, kn_cu_dnn_t d, const char *what)
{
	if (!g->rc)
		check(g, g->api->finalize(d), what);
}

static void add_op(struct kn_cu_dnn_graph *g, kn_cu_dnn_t d, const char *what)
{
	finish(g, d, what);
	if (!g->rc && g->nops == KN_CU_DNN_OPS)
		check(g, CUDNN_STATUS_INTERNAL_ERROR, what);
	if (!g->rc)
		g->op[g->nops++] = d;
}

void kn_cu_dnn_begin(struct kn_cu_dnn_graph *g, const struct kn_cu_dnn_api *api)
{
	memset(g, 0, sizeof(*g));
	g->api = api;
	g->next_id = 1000;
}

static void graph_release(struct kn_cu_dnn_graph *g)
{
	while (g->nmade)
		g->api->destroy(g->made[--g->nmade]);
}

kn_cu_dnn_t kn_cu_dnn_tensor(struct kn_cu_dnn_graph *g, enum kn_cu_dnn_kind kind, int64_t id,
			     cudnnDataType_t type, const struct kn_cu_dnn_shape *shape)
{
	static const char what[] = "describing a tensor";
	kn_cu_dnn_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
	const int64_t align = 16, own = kind == KN_CU_DNN_INSIDE ? g->next_id++ : id;
	const _Bool inside = kind == KN_CU_DNN_INSIDE, value = kind == KN_CU_DNN_SCALAR;

	set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &own);
	set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
	set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape->dim);
	set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shape->stride);
	if (inside)
		set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside);
	if (value)
		set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &value);
	finish(g, d, what);
	return d;
}

static void point(struct kn_cu_dnn_graph *g, cudnnPointwiseMode_t mode, const int64_t *axis,
		  kn_cu_dnn_t x, kn_cu_dnn_t b, kn_cu_dnn_t t, kn_cu_dnn_t y)
{
	static const char what[] = "describing an operation on elements";
	kn_cu_dnn_t how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
	kn_cu_dnn_t d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
	const cudnnDataType_t type =
		mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;

	set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
	if (axis)
		set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, axis);
	finish(g, how, what);
	set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
	set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
	set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	add_op(g, d, what);
}

void kn_cu_dnn_point(struct kn_cu_dnn_graph *g, cudnnPointwiseMode_t mode, kn_cu_dnn_t x,
		     kn_cu_dnn_t b, kn_cu_dnn_t t, kn_cu_dnn_t y)
{
	point(g, mode, NULL, x, b, t, y);
}

void kn_cu_dnn_index(struct kn_cu_dnn_graph *g, int64_t axis, kn_cu_dnn_t x, kn_cu_dnn_t y)
{
	point(g, CUDNN_POINTWISE_GEN_INDEX, &axis, x, NULL, NULL, y);
}

void kn_cu_dnn_reduce(struct kn_cu_dnn_graph *g, cudnnReduceTensorOp_t op, kn_cu_dnn_t x,
		      kn_cu_dnn_t y)
{
	static const char what[] = "describing a reduction";
	kn_cu_dnn_t how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what);
	kn_cu_dnn_t d = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
	const cudnnDataType_t type = CUDNN_DATA_FLOAT;

	set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
	set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	finish(g, how, what);
	set_desc(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
	set_desc(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
	set_desc(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
	add_op(g, d, what);
}

void kn_cu_dnn_matmul(struct kn_cu_dnn_graph *g, kn_cu_dnn_t a, kn_cu_dnn_t b, kn_cu_dnn_t c)
{
	static const char what[] = "describing a matrix product";
	kn_cu_dnn_t how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, what);
	kn_cu_dnn_t d = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
	const cudnnDataType_t type = CUDNN_DATA_FLOAT;

	set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	finish(g, how, what);
	set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
	set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
	set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
	set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
	add_op(g, d, what);
}

void kn_cu_dnn_reshape(struct kn_cu_dnn_graph *g, kn_cu_dnn_t x, kn_cu_dnn_t y)
{
	static const char what[] = "describing a view of a tensor";
	kn_cu_dnn_t d = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);

	set_desc(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
	set_desc(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
	add_op(g, d, what);
}

/* ---------------------------------------------------------------- plans */

#define MOST_CONFIGS 16

struct configs {
	kn_cu_dnn_t at[MOST_CONFIGS];
	int64_t count;
};

static void describe(const struct kn_cu_dnn_api *api, cudnnStatus_t rc, const char *doing,
		     char *why, size_t size)
{
	char text[200] = "";

	api->last_error(text, sizeof(text));
	for (char *c = text; *c; c++)
		if (*c == '\n')
			*c = ' ';
	if (why && size)
		snprintf(why, size, "cuDNN %zu, %s: %s%s%s", api->version, doing,
			 api->error_string(rc), *text ? "; " : "", text);
}

static cudnnStatus_t graph_new(struct kn_cu_dnn_graph *g, cudnnHandle_t handle, kn_cu_dnn_t *out)
{
	const struct kn_cu_dnn_api *api = g->api;
	kn_cu_dnn_t d = NULL;
	cudnnStatus_t rc = api->create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &d);

	if (!rc)
		rc = api->set(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
	if (!rc)
		rc = api->set(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
			      (int64_t)g->nops, g->op);
	if (!rc)
		rc = api->finalize(d);
	if (!rc)
		*out = d;
	else if (d)
		api->destroy(d);
	return rc;
}

static void configs_release(const struct kn_cu_dnn_api *api, struct configs *c)
{
	for (int i = 0; i < MOST_CONFIGS; i++)
		if (c->at[i])
			api->destroy(c->at[i]);
	memset(c, 0, sizeof(*c));
}

/* cuDNN fills descriptors that are there already. */
static cudnnStatus_t ask(const struct kn_cu_dnn_api *api, kn_cu_dnn_t graph,
			 cudnnBackendHeurMode_t mode, struct configs *c)
{
	kn_cu_dnn_t heur = NULL;
	cudnnStatus_t rc = api->create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heur);

	if (!rc)
		rc = api->set(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
			      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
	if (!rc)
		rc = api->set(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	if (!rc)
		rc = api->finalize(heur);
	for (int i = 0; i < MOST_CONFIGS && !rc; i++)
		rc = api->create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &c->at[i]);
	if (!rc)
		rc = api->get(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
			      MOST_CONFIGS, &c->count, c->at);
	if (c->count > MOST_CONFIGS)
		c->count = MOST_CONFIGS;
	if (heur)
		api->destroy(heur);
	return rc;
}

/* 1: its engine carries no mark of results that differ from run to run. */
static int is_fixed(const struct kn_cu_dnn_api *api, kn_cu_dnn_t config)
{
	cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	kn_cu_dnn_t engine = NULL;
	int64_t n = 0;
	cudnnStatus_t rc = api->create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
	int fixed;

	if (!rc)
		rc = api->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
			      &n, &engine);
	if (!rc)
		rc = api->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
			      CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, note);
	fixed = !rc;
	for (int64_t i = 0; fixed && i < n; i++)
		fixed = note[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
	if (engine)
		api->destroy(engine);
	return fixed;
}

static cudnnStatus_t build(const struct kn_cu_dnn_api *api, cudnnHandle_t handle,
			   kn_cu_dnn_t config, kn_cu_dnn_t *plan_out, size_t *work_out)
{
	kn_cu_dnn_t d = NULL;
	int64_t n = 0, work = 0;
	cudnnStatus_t rc = api->create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d);

	if (!rc)
		rc = api->set(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
	if (!rc)
		rc = api->set(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
			      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
	if (!rc)
		rc = api->finalize(d);
	if (!rc)
		rc = api->get(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
			      &work);
	if (!rc) {
		*plan_out = d;
		*work_out = work > 0 ? (size_t)work : 0;
	} else if (d) {
		api->destroy(d);
	}
	return rc;
}

/* The first suggestion of this mode that becomes a plan. */
static cudnnStatus_t choose(const struct kn_cu_dnn_api *api, cudnnHandle_t handle, int fixed,
			    cudnnBackendHeurMode_t mode, struct kn_cu_dnn_plan *p)
{
	struct configs c = {0};
	cudnnStatus_t rc = ask(api, p->graph, mode, &c);

	if (!rc && !c.count)
		rc = CUDNN_STATUS_NOT_SUPPORTED;
	for (int64_t i = 0; i < c.count && !p->plan; i++) {
		if (fixed && !is_fixed(api, c.at[i])) {
			rc = CUDNN_STATUS_NOT_SUPPORTED;
			continue;
		}
		rc = build(api, handle, c.at[i], &p->plan, &p->work);
		if (!rc) {
			p->config = c.at[i];
			c.at[i] = NULL;
		}
	}
	configs_release(api, &c);
	return rc;
}

int kn_cu_dnn_plan(struct kn_cu_dnn_graph *g, cudnnHandle_t handle, int fixed,
		   struct kn_cu_dnn_plan *plan_out, char *why, size_t size)
{
	struct kn_cu_dnn_plan p = {0};
	const char *doing = g->doing;
	cudnnStatus_t rc = g->rc;

	if (!rc) {
		doing = "building the operation graph";
		rc = graph_new(g, handle, &p.graph);
	}
	if (!rc) {
		doing = "choosing an attention engine";
		rc = choose(g->api, handle, fixed, CUDNN_HEUR_MODE_A, &p);
		if (rc)
			rc = choose(g->api, handle, fixed, CUDNN_HEUR_MODE_FALLBACK, &p);
	}
	if (rc) {
		describe(g->api, rc, doing, why, size);
		kn_cu_dnn_plan_release(g->api, &p);
	} else {
		*plan_out = p;
	}
	graph_release(g);
	return rc ? -1 : 0;
}

void kn_cu_dnn_plan_release(const struct kn_cu_dnn_api *api, struct kn_cu_dnn_plan *plan)
{
	if (plan->plan)
		api->destroy(plan->plan);
	if (plan->config)
		api->destroy(plan->config);
	if (plan->graph)
		api->destroy(plan->graph);
	memset(plan, 0, sizeof(*plan));
}

cudnnStatus_t kn_cu_dnn_run(const struct kn_cu_dnn_api *api, cudnnHandle_t handle,
			    const struct kn_cu_dnn_plan *plan, const int64_t *ids, void *const *at,
			    size_t n, void *work, cudaStream_t stream)
{
	kn_cu_dnn_t pack = NULL;
	cudnnStatus_t rc = api->stream(handle, stream);

	if (!rc)
		rc = api->create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
	if (!rc)
		rc = api->set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
			      (int64_t)n, ids);
	if (!rc)
		rc = api->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
			      (int64_t)n, at);
	if (!rc)
		rc = api->set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
			      &work);
	if (!rc)
		rc = api->finalize(pack);
	if (!rc)
		rc = api->execute(handle, plan->plan, pack);
	if (pack)
		api->destroy(pack);
	return rc;
}

#else

/* Built without cuDNN's headers: kn_cu_attn_cudnn.c says so when it is asked. */
typedef int kn_cu_cudnn_is_not_built_in;

#endif
