# rules.mk -- read by the Makefile: what is for GPUs.  libztrain_cuda.a is the
# kernels and the engine's part that calls CUDA; ztrain-gpu is ztrain with it.
CUDA_SRC := $(sort $(wildcard kernels/cuda/*.cu kernels/cuda/*.c) $(ENGINE_CUDA_SRC))
CUDA_OBJ := $(patsubst %,$(B)/%.o,$(basename $(CUDA_SRC)))
OBJS     += $(CUDA_OBJ)
$(CUDA_OBJ): INC += $(CUDA_CFLAGS)
$(filter-out $(patsubst %.cu,$(B)/%.o,$(CUDA_SRC)),$(CUDA_OBJ)): | need-cuda

GPU_NEWEST := $(lastword $(sort $(GPU_ARCH)))
NVCC_FLAGS := -std=c++17 -O3 -lineinfo $(foreach a,$(GPU_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
              -gencode arch=compute_$(GPU_NEWEST),code=compute_$(GPU_NEWEST) \
              -Xcompiler=-fPIC,-fno-exceptions,-fvisibility=hidden,-ffp-contract=off,-Wall,-Wextra,-Wno-unknown-pragmas
ifeq ($(strip $(DEVELOPER)),1)
NVCC_FLAGS += -Werror all-warnings -Xcompiler=-Werror
endif
# Adam and the norm have the bits of the CPU.
$(B)/kernels/cuda/kn_cu_optim.o $(B)/kernels/cuda/kn_cu_random.o: NVCC_MORE = -fmad=false

## gpu: build build/ztrain-gpu, the GPU kernels (libztrain_cuda.a) and their tests (needs nvcc, no GPU)
gpu: $(B)/ztrain-gpu $(B)/libztrain_cuda.a | need-cuda
	@ln -sfn $(notdir $(B))/ztrain-gpu build/ztrain-gpu

# Programs take the objects: of the archive they would get only what something
# asked for before libztrain.a.
$(eval $(call archive,$(B)/libztrain_cuda.a,$(CUDA_OBJ)))
$(eval $(call program,$(B)/ztrain-gpu,$(ZTRAIN_MPI) $(CUDA_OBJ) $(B)/libztrain.a $(B)/libckpt.a,$(TRAIN_LIBS) $(MPI_LIBS) $(CUDA_LIBS) -lm,$(MPI_CC)))

$(B)/nvcc.list: NAMES = $(NVCC) $(NVCC_FLAGS)
$(B)/%.o: %.cu $(B)/nvcc.list | need-cuda
	@mkdir -p $(@D) && printf '  %-5s %s\n' NVCC $<
	$(Q)$(NVCC) $(NVCC_FLAGS) $(NVCC_MORE) -I. -Ikernels/include -MMD -MP -c -o $@ $<

.PHONY: gpu
