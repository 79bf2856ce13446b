# zckpt -- `make help` lists the targets, `make config` what was found.

## all: libckpt.a, libckpt.so and zckpt (default)
all: lib train tools

# Knobs: `?=` throughout, so the environment and the command line win.
CC        ?= cc
CFLAGS    ?= -O2 -g
PREFIX    ?= /usr/local
DESTDIR   ?=
DEVELOPER ?= 0#    1: warnings are errors
SAN       ?=#      e.g. SAN=address,undefined or SAN=thread
T         ?=#      make check T='zip cli/convert': only tests whose path has one of these words
SECONDS   ?= 60
FLOOR     ?= 90#   percent, of make coverage
FUZZ_CC   ?= clang
FUZZ_SAN  := SAN=address,undefined,fuzzer-no-link
V         ?= 0#    1: show every command
MPI       ?= auto#  zckpt-mpi for mpirun and srun: auto = where MPI is found, 0 = no, 1 = it must be
PACK      ?= auto#  packs (.tar.zst): auto = where libarchive and zstd are found, 0 = no, 1 = they must be
URING     ?= auto#  states on NVMe by io_uring: auto = where liburing is found, 0 = threads, 1 = it must be
YAML      ?= auto#  accelerate's YAML: auto = where libyaml is found, 0 = no, 1 = it must be
CRYPTO    ?= auto#  secrets of ranks that meet by TCP: auto = where libcrypto is found, 0 = no, 1 = it must be
BLAS      ?= auto#  matrix products of ztrain by OpenBLAS: auto = where it is found, 0 = own loops, 1 = it must be
CUDA      ?= auto#  make gpu, make check-gpu: auto = where nvcc is found, 0 = no, 1 = it must be
GPU_ARCH  ?= 80 90#  machine code for these (80 or more); later ones compile the PTX of the last at start
BENCH     ?=#      options of tests/bench/bench.sh
FUZZ      ?=#      make fuzz FUZZ='zip pickle' SECONDS=600: only these targets, so long each
JOBS      ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)

Q       := $(if $(filter 1,$(V)),,@)
VERSION := $(shell sed -n 's/^.define CKPT_VERSION_STRING "\(.*\)"/\1/p' libckpt/include/ckpt.h 2>/dev/null)
SONAME  := libckpt.so.0

# What the project adds to the knobs. The user's CFLAGS come last and win;
# contraction is off because results are compared bit for bit.
WARN     := -Wall -Wextra -Wshadow -Wvla -Wwrite-strings -Wstrict-prototypes \
            -Wmissing-prototypes -Wpointer-arith -Wundef -Wformat=2
ALL_CPPFLAGS := -D_GNU_SOURCE= -D_FILE_OFFSET_BITS=64 $(CPPFLAGS)
ALL_CFLAGS   := -std=c11 -fPIC -fvisibility=hidden -ffp-contract=off -pthread $(WARN)
ALL_LDFLAGS  := -pthread $(LDFLAGS)
ifeq ($(strip $(DEVELOPER)),1)
ALL_CFLAGS   += -Werror
endif
ifneq ($(strip $(SAN)),)
ALL_CFLAGS   += -fsanitize=$(strip $(SAN)) -fno-omit-frame-pointer -fno-sanitize-recover=all
ALL_LDFLAGS  += -fsanitize=$(strip $(SAN))
endif
ALL_CFLAGS   += $(CFLAGS)

# Outside libraries, by pkg-config. What is missing is said when something
# needs it (need-libs, need-cmocka), so that `make help` works without it.
PKG_CONFIG ?= pkg-config
LIB_PKGS   := libcjson libxxhash libdeflate
has_pkg     = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo yes)
NO_LIBS    := $(strip $(foreach p,$(LIB_PKGS),$(if $(call has_pkg,$(p)),,$(p))))
NO_CMOCKA  := $(if $(call has_pkg,cmocka),,cmocka)
ifeq ($(NO_LIBS),)
ALL_CPPFLAGS += $(shell $(PKG_CONFIG) --cflags $(LIB_PKGS))
LIB_LIBS     := $(shell $(PKG_CONFIG) --libs $(LIB_PKGS)) -lm
endif
ifeq ($(NO_CMOCKA),)
CMOCKA_CFLAGS := $(shell $(PKG_CONFIG) --cflags cmocka)
CMOCKA_LIBS   := $(shell $(PKG_CONFIG) --libs cmocka)
endif

# Packs take two more libraries; without them the verbs say so.
ifneq ($(strip $(PACK)),0)
PACK_PKGS := libarchive libzstd
NO_PACK   := $(strip $(foreach p,$(PACK_PKGS),$(if $(call has_pkg,$(p)),,$(p))))
ifeq ($(NO_PACK),)
HAS_PACK     := yes
ALL_CPPFLAGS += -DCKPT_PACKS=1 $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags $(PACK_PKGS)))
# Not "Requires.private" of libckpt.pc: a static libarchive would want all that it can use.
PACK_LIBS    := $(strip $(shell $(PKG_CONFIG) --libs $(PACK_PKGS)))
LIB_LIBS     += $(PACK_LIBS)
endif
endif

# The engine reads accelerate's YAML with libyaml; without it, it says so.
ifneq ($(strip $(YAML)),0)
ifneq ($(call has_pkg,yaml-0.1),)
HAS_YAML     := yes
ALL_CPPFLAGS += -DEN_YAML=1 $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags yaml-0.1))
ENGINE_LIBS  += $(shell $(PKG_CONFIG) --libs yaml-0.1)
endif
endif

# States on NVMe go through io_uring; without liburing, threads read and write them.
ifneq ($(strip $(URING)),0)
ifneq ($(call has_pkg,liburing),)
HAS_URING    := yes
URING_CFLAGS := -DEN_URING=1 $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags liburing))
ENGINE_LIBS  += $(shell $(PKG_CONFIG) --libs liburing)
endif
endif

# Ranks that meet by TCP prove with HMAC-SHA256 of libcrypto that they know the secret of their job; without it, none can be used.
ifneq ($(strip $(CRYPTO)),0)
ifneq ($(call has_pkg,libcrypto),)
HAS_CRYPTO    := yes
CRYPTO_CFLAGS := -DEN_CRYPTO=1 $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags libcrypto))
ENGINE_LIBS   += $(shell $(PKG_CONFIG) --libs libcrypto)
endif
endif

# OpenBLAS multiplies matrices for the training engine; kn_gemm.c alone sees it, kn_gemm_bf16.c only whether.
ifneq ($(strip $(BLAS)),0)
ifneq ($(call has_pkg,openblas),)
HAS_BLAS    := yes
BLAS_CFLAGS := -DKN_OPENBLAS=1 $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags openblas))
BLAS_LIBS   := $(shell $(PKG_CONFIG) --libs openblas)
endif
endif

# nvcc from PATH, or where CUDA lies; what is found is for `make gpu` alone.
ifneq ($(strip $(CUDA)),0)
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard $(CUDA_HOME)/bin/nvcc))
endif
ifneq ($(NVCC),)
CUDA_DIR    := $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC)))))
CUDA_CFLAGS := -isystem $(CUDA_DIR)/include
CUDA_LIBS   := -L$(CUDA_DIR)/lib64 -Wl,-rpath,$(CUDA_DIR)/lib64 -lcudart -lcublasLt -lnccl -ldl -lstdc++
GPU_NEWEST  := $(lastword $(sort $(GPU_ARCH)))
NVCC_FLAGS  := -std=c++17 -O3 -lineinfo $(foreach a,$(GPU_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
               -gencode arch=compute_$(GPU_NEWEST),code=compute_$(GPU_NEWEST) \
               -Xcompiler=-fPIC,-fno-exceptions,-fvisibility=hidden,-ffp-contract=off,-Wall,-Wextra,-Wno-unknown-pragmas
ifeq ($(strip $(DEVELOPER)),1)
NVCC_FLAGS  += -Werror all-warnings -Xcompiler=-Werror
endif
endif

# MPI is for zckpt-mpi and the engine's ranks: pkg-config, else the wrapper mpicc around our own compiler.
ifneq ($(strip $(MPI)),0)
MPI_PKG := $(firstword $(foreach p,ompi-c mpich,$(if $(call has_pkg,$(p)),$(p))))
ifneq ($(MPI_PKG),)
MPI_CC     := $(CC)
MPI_CFLAGS := $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags $(MPI_PKG)))
MPI_LIBS   := $(shell $(PKG_CONFIG) --libs $(MPI_PKG))
else ifneq ($(shell command -v mpicc 2>/dev/null),)
MPI_CC     := OMPI_CC='$(CC)' MPICH_CC='$(CC)' mpicc
endif
endif

# One object folder per flag set: a sanitizer build never links plain objects.
comma := ,
FLAGS := $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(BLAS_CFLAGS)
B     := build/$(notdir $(firstword $(CC)))$(if $(strip $(SAN)),-$(subst $(comma),-,$(strip $(SAN))))-$(shell printf '%s' '$(FLAGS)' | cksum | cut -d' ' -f1)

LIB_SRC   := $(sort $(filter-out $(if $(HAS_PACK),,formats/archive/%), \
             $(wildcard libckpt/*/*.c formats/*.c formats/*/*.c kernels/ref/*.c kernels/cpu/*.c)))
# The training engine and its kernels: build/.../libztrain.a, apart from libckpt.
# What needs MPI is in libztrain_mpi.a, linked before it by programs that are to have it.
TRAIN_MPI_SRC := engine/comm/en_comm_mpi.c
ZTRAIN_SRC := $(sort $(wildcard engine/main/*.c))
TRAIN_SRC := $(sort $(filter-out $(TRAIN_MPI_SRC) $(ZTRAIN_SRC) engine/cuda/en_cuda_%.c,$(wildcard engine/*.c engine/*/*.c) \
             $(wildcard kernels/ref/train/*.c kernels/cpu/train/*.c)))
TOOL_SRC  := $(sort $(wildcard tools/*.c))
UNIT_SRC  := $(sort $(filter-out $(if $(HAS_PACK),,tests/unit/test_pack% tests/torture/test_torture_pack.c), \
             $(wildcard tests/unit/test_*.c tests/torture/test_*.c tests/cli/test_*.c)))
API_SRC   := $(sort $(wildcard tests/api/test_*.c))
ETEST_SRC := $(sort $(wildcard tests/engine/test_*.c))
ETLIB_SRC := $(sort $(wildcard tests/engine/te_*.c))
EMPI_SRC  := $(sort $(wildcard tests/engine/mpi_*.c))
WATCH_SRC := $(sort $(wildcard tests/engine/watch_*.c))
TLIB_SRC  := $(sort $(filter-out $(if $(HAS_PACK),,tests/lib/t_pack.c),$(wildcard tests/lib/*.c)))
# Kernels for GPUs, in build/.../libztrain_cuda.a, and their tests.
CUDA_SRC  := $(sort $(wildcard kernels/cuda/*.cu kernels/cuda/*.c engine/cuda/en_cuda_*.c))
GTEST_SRC := $(sort $(wildcard tests/gpu/test_cuda_*.c))
GTLIB_SRC := $(sort $(wildcard tests/gpu/tg_*.c))
# GPUs that are not there: CUDA, NCCL and the kernels on a CPU, and engine/cuda compiled for them.
FAKE_SRC  := $(sort $(wildcard tests/gpu/fake/*.c engine/cuda/en_cuda_*.c)) kernels/cuda/kn_cu_embed_list.c
FUZZ_SRC  := $(sort $(filter-out $(if $(HAS_PACK),,tests/fuzz/fz_t_pack.c),$(wildcard tests/fuzz/*.c)))
BENCH_SRC := $(sort $(wildcard tests/bench/*.c))
objects    = $(patsubst %.c,$(B)/%.o,$(1))
LIB   := $(call objects,$(LIB_SRC))
TOOL  := $(call objects,$(TOOL_SRC))
TLIB  := $(call objects,$(TLIB_SRC))
TRAIN := $(call objects,$(TRAIN_SRC))
ZTRAIN := $(call objects,$(ZTRAIN_SRC))
TRAIN_MPI := $(TRAIN_MPI_SRC:%.c=$(B)/%.mpi.o)
EMPI  := $(EMPI_SRC:%.c=$(B)/%.mpi.o)
WATCH := $(WATCH_SRC:%.c=$(B)/%.mpi.o)
EMPI_TESTS := $(if $(MPI_CC),$(B)/tests/engine/mpi_comm $(B)/tests/engine/ztrain_watched)
# What ztrain_watched stands in the place of (tests/engine/watch.h).
WATCHED := en_comm_all_gather en_comm_gather_small en_comm_reduce_scatter en_comm_all_reduce en_comm_broadcast \
           en_comm_barrier en_comm_mpi_open en_run en_layer_forward en_layer_backward en_zero_update \
           ckpt_save_begin ckpt_save_put ckpt_save_wait
ETLIB := $(call objects,$(ETLIB_SRC))
ETEST := $(patsubst %.c,$(B)/%,$(ETEST_SRC))
ETIMERS := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/engine/bench_*.c)))
CUDA_OBJ := $(patsubst %,$(B)/%.o,$(basename $(CUDA_SRC)))
GTLIB := $(call objects,$(GTLIB_SRC))
GTEST := $(patsubst %.c,$(B)/%,$(GTEST_SRC))
FAKE  := $(FAKE_SRC:%.c=$(B)/fake/%.o)
FTEST := $(addprefix $(B)/fake/tests/gpu/,test_cuda_engine test_cuda_offload test_cuda_save test_fake_gpu)
UNIT  := $(patsubst %.c,$(B)/%,$(UNIT_SRC))
API   := $(patsubst %.c,$(B)/%,$(API_SRC))
TIMERS := $(patsubst %.c,$(B)/%,$(BENCH_SRC))
FZ        := $(call objects,$(filter-out tests/fuzz/fz_fuzzer.c tests/fuzz/fz_replay.c \
             tests/fuzz/fz_pack.c,$(FUZZ_SRC)))
FZ_TOOLS  := $(B)/tests/fuzz/fz_replay $(B)/tests/fuzz/fz_pack
MPI_TOOL := $(filter-out $(B)/tools/cli_mpi.o,$(TOOL)) $(B)/tools/cli_mpi.mpi.o
OBJS  := $(LIB) $(TOOL) $(B)/tools/cli_mpi.mpi.o $(TLIB) $(UNIT:=.o) $(API:=.o) $(TIMERS:=.o) \
         $(call objects,$(FUZZ_SRC)) $(TRAIN) $(TRAIN_MPI) $(ZTRAIN) $(EMPI) $(WATCH) $(ETLIB) $(ETEST:=.o) $(ETIMERS:=.o) $(CUDA_OBJ) $(GTLIB) $(GTEST:=.o) \
         $(FAKE) $(FTEST:=.o)

# What a folder may include is partly a matter of flags: the program and the
# API tests are compiled without -I., so they cannot reach an internal header.
$(LIB):                                 INC = -I. -Ilibckpt/include -Ikernels/include
$(TOOL) $(B)/tools/cli_mpi.mpi.o:        INC = -Ilibckpt/include
$(TLIB) $(UNIT:=.o) $(TIMERS:=.o) $(call objects,$(FUZZ_SRC)): INC = -I. -Ilibckpt/include -Ikernels/include $(CMOCKA_CFLAGS)
$(TRAIN) $(TRAIN_MPI) $(ZTRAIN) $(EMPI) $(WATCH): INC = -I. -Ilibckpt/include -Ikernels/include
$(ETLIB) $(ETEST:=.o) $(ETIMERS:=.o):   INC = -I. -Ilibckpt/include -Ikernels/include $(CMOCKA_CFLAGS)
$(B)/kernels/cpu/train/kn_gemm.o $(B)/kernels/cpu/train/kn_gemm_bf16.o: INC += $(BLAS_CFLAGS)
$(B)/engine/nvme/en_nvme_uring.o:       INC += $(URING_CFLAGS)
$(B)/engine/nvme/en_nvme_uring.o:       $(B)/uring.list
$(B)/engine/comm/en_secret_tag.o:       INC += $(CRYPTO_CFLAGS)
$(B)/engine/comm/en_secret_tag.o:       $(B)/crypto.list
$(CUDA_OBJ) $(GTLIB) $(GTEST:=.o):      INC = -I. -Ilibckpt/include -Ikernels/include $(CUDA_CFLAGS)
# Adam and the norm have the bits of the CPU.
$(B)/kernels/cuda/kn_cu_optim.o $(B)/kernels/cuda/kn_cu_random.o: NVCC_MORE = -fmad=false
$(FAKE) $(FTEST:=.o):                   INC = -isystem tests/gpu/fake/include -I. -Ilibckpt/include -Ikernels/include
$(FTEST:=.o):                           INC += -DWAYS=1
$(API:=.o):                             INC = -Ilibckpt/include $(CMOCKA_CFLAGS)

SO := libckpt.so.$(VERSION)

## lib: the library, static and shared
lib: $(B)/libckpt.a $(B)/libckpt.so
## train: the training engine as a library, libztrain.a, and libztrain_mpi.a where MPI is found
train: $(B)/libztrain.a $(if $(MPI_CC),$(B)/libztrain_mpi.a) $(B)/ztrain | need-mpi
	@ln -sfn $(notdir $(B))/ztrain build/ztrain
## gpu: build/ztrain-gpu, kernels for GPUs, libztrain_cuda.a, and their tests (needs nvcc, no GPU)
gpu: $(B)/ztrain-gpu $(B)/libztrain_cuda.a $(GTEST) | need-cuda
	@ln -sfn $(notdir $(B))/ztrain-gpu build/ztrain-gpu
## fake: build/ztrain-fake, which has GPUs that are not there, for tests
fake: $(B)/ztrain-fake $(FTEST) | need-mpi
	@ln -sfn $(notdir $(B))/ztrain-fake build/ztrain-fake
## tools: the zckpt program, and zckpt-mpi where MPI is found; build/zckpt is a link to the last built
tools: $(B)/zckpt $(if $(MPI_CC),$(B)/zckpt-mpi) | need-mpi
	@$(if $(MPI_CC),:,rm -f $(B)/zckpt-mpi)
	@ln -sfn $(notdir $(B))/zckpt build/zckpt
## tests: the test and bench programs, not run
tests: fake $(UNIT) $(API) $(ETEST) $(ETIMERS) $(TIMERS) $(FZ_TOOLS) $(EMPI_TESTS)

$(B)/libckpt.a: $(LIB) $(B)/lib.list
	@printf '  %-5s %s\n' AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $(LIB)
$(B)/libtests.a: $(TLIB) $(B)/tlib.list
	$(Q)rm -f $@ && $(AR) rcs $@ $(TLIB)
$(B)/libztrain.a: $(TRAIN) $(B)/train.list
	@printf '  %-5s %s\n' AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $(TRAIN)
$(B)/libztrain_mpi.a: $(TRAIN_MPI) $(B)/train.list
	@printf '  %-5s %s\n' AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $(TRAIN_MPI)
# The programs of tests/gpu need no more of us than kernels.
# Programs take the objects: of the archive only those that something asked for before libztrain.a.
$(B)/libztrain_cuda.a: $(CUDA_OBJ) $(B)/cuda.list
	@printf '  %-5s %s\n' AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $(CUDA_OBJ)
$(GTEST): %: %.o $(GTLIB) $(CUDA_OBJ) $(B)/libztrain.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -Wl,--as-needed $(ENGINE_LIBS) $(LIB_LIBS) $(CUDA_LIBS) $(BLAS_LIBS) -lm
# ztrain with GPUs; the program without them needs no library of CUDA's.
$(B)/ztrain-gpu: $(ZTRAIN) $(if $(MPI_CC),$(B)/libztrain_mpi.a) $(CUDA_OBJ) $(B)/libztrain.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(or $(MPI_CC),$(CC)) $(ALL_LDFLAGS) -o $@ $^ $(ENGINE_LIBS) $(LIB_LIBS) $(BLAS_LIBS) $(MPI_LIBS) $(CUDA_LIBS) -lm
$(B)/ztrain-fake: $(ZTRAIN) $(if $(MPI_CC),$(B)/libztrain_mpi.a) $(FAKE) $(B)/libztrain.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(or $(MPI_CC),$(CC)) $(ALL_LDFLAGS) -o $@ $^ $(ENGINE_LIBS) $(LIB_LIBS) $(BLAS_LIBS) $(MPI_LIBS)
$(FTEST): %: %.o $(FAKE) $(B)/libztrain.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(ENGINE_LIBS) $(LIB_LIBS) $(BLAS_LIBS)
$(B)/$(SO): $(LIB) $(B)/lib.list libckpt/libckpt.map
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=libckpt/libckpt.map \
	    $(if $(strip $(SAN)),,-Wl,-z,defs) $(ALL_LDFLAGS) -o $@ $(LIB) $(LIB_LIBS)
$(B)/libckpt.so: $(B)/$(SO)
	$(Q)ln -sfn $(SO) $(B)/$(SONAME) && ln -sfn $(SO) $@
$(B)/zckpt: $(TOOL) $(B)/tool.list $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(TOOL) $(B)/libckpt.a $(LIB_LIBS)
$(B)/zckpt-mpi: $(MPI_TOOL) $(B)/tool.list $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(MPI_CC) $(ALL_LDFLAGS) -o $@ $(MPI_TOOL) $(B)/libckpt.a $(LIB_LIBS) $(MPI_LIBS)
$(B)/%.mpi.o: %.c | need-libs
	@mkdir -p $(@D) && printf '  %-5s %s\n' CC '$< (MPI)'
	$(Q)$(MPI_CC) $(ALL_CPPFLAGS) $(INC) $(ALL_CFLAGS) -DZCKPT_MPI=1 $(MPI_CFLAGS) -MMD -MP -c -o $@ $<
$(UNIT): %: %.o $(B)/libtests.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(CMOCKA_LIBS) $(LIB_LIBS)
$(ETEST) $(ETIMERS): %: %.o $(ETLIB) $(B)/libtests.a $(B)/libztrain.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(CMOCKA_LIBS) $(ENGINE_LIBS) $(LIB_LIBS) $(BLAS_LIBS)
$(B)/tests/engine/mpi_comm: $(EMPI) $(B)/libztrain_mpi.a $(B)/libztrain.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(MPI_CC) $(ALL_LDFLAGS) -o $@ $^ $(ENGINE_LIBS) $(LIB_LIBS) $(BLAS_LIBS) $(MPI_LIBS)
$(B)/tests/engine/ztrain_watched: $(ZTRAIN) $(WATCH) $(B)/libztrain_mpi.a $(B)/libztrain.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(MPI_CC) $(ALL_LDFLAGS) $(WATCHED:%=-Wl,--wrap=%) -o $@ $^ $(ENGINE_LIBS) $(LIB_LIBS) $(BLAS_LIBS) $(MPI_LIBS)
$(B)/ztrain: $(ZTRAIN) $(if $(MPI_CC),$(B)/libztrain_mpi.a) $(B)/libztrain.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(or $(MPI_CC),$(CC)) $(ALL_LDFLAGS) -o $@ $^ $(ENGINE_LIBS) $(LIB_LIBS) $(BLAS_LIBS) $(MPI_LIBS)
$(TIMERS): %: %.o $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIB_LIBS)
# Fuzz targets: any compiler replays, clang's libFuzzer finds (docs/internals/fuzzing.md).
$(FZ_TOOLS): %: %.o $(FZ) $(B)/libtests.a $(B)/libztrain.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(ENGINE_LIBS) $(LIB_LIBS)
$(B)/fuzzer: $(B)/tests/fuzz/fz_fuzzer.o $(FZ) $(B)/libtests.a $(B)/libztrain.a $(B)/libckpt.a
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(ENGINE_LIBS) $(LIB_LIBS)
fuzzer: $(B)/fuzzer $(FZ_TOOLS) $(B)/zckpt
# The API tests link the shared library: a function that is declared and not
# exported fails here. tests/lib offers them only what needs no ck_* name.
$(API): %: %.o $(B)/libtests.a $(B)/libckpt.so
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(B)/libtests.a $(B)/libckpt.so \
	    -Wl,-rpath,$(abspath $(B)) $(CMOCKA_LIBS) $(LIB_LIBS)

$(B)/%.o: %.c | need-libs
	@mkdir -p $(@D) && printf '  %-5s %s\n' CC $<
	$(Q)$(CC) $(ALL_CPPFLAGS) $(INC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
$(B)/fake/%.o: %.c | need-libs
	@mkdir -p $(@D) && printf '  %-5s %s\n' CC '$< (fake)'
	$(Q)$(CC) $(ALL_CPPFLAGS) $(INC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
$(B)/%.o: %.cu $(B)/nvcc.list | need-cuda
	@mkdir -p $(@D) && printf '  %-5s %s\n' NVCC $<
	$(Q)$(NVCC) $(NVCC_FLAGS) $(NVCC_MORE) -I. -Ikernels/include -MMD -MP -c -o $@ $<
$(UNIT:=.o) $(API:=.o) $(ETEST:=.o): | need-cmocka
$(filter-out $(patsubst %.cu,$(B)/%.o,$(CUDA_SRC)),$(CUDA_OBJ)) $(GTLIB) $(GTEST:=.o): | need-cuda
$(TOOL) $(B)/tools/cli_mpi.mpi.o $(TRAIN_MPI) $(EMPI) $(WATCH): | need-mpi

# Lists of objects, rewritten when a source comes or goes, so that nothing
# keeps the object of a file that was removed.
$(B)/lib.list:  NAMES = $(LIB)
$(B)/tlib.list: NAMES = $(TLIB)
$(B)/tool.list: NAMES = $(TOOL)
$(B)/train.list: NAMES = $(TRAIN) $(HAS_BLAS)
$(B)/uring.list: NAMES = $(HAS_URING)
$(B)/crypto.list: NAMES = $(HAS_CRYPTO)
$(B)/cuda.list: NAMES = $(CUDA_OBJ)
$(B)/nvcc.list: NAMES = $(NVCC) $(NVCC_FLAGS)
$(B)/%.list: FORCE
	@mkdir -p $(@D) && printf '%s\n' '$(NAMES)' | cmp -s - $@ || printf '%s\n' '$(NAMES)' > $@
FORCE:

need-libs:
	@test '$(strip $(YAML))' != 1 || test -n '$(HAS_YAML)' || { echo 'YAML=1, and pkg-config does not find yaml-0.1: run tools/deps.sh' >&2; exit 1; }
	@test '$(strip $(URING))' != 1 || test -n '$(HAS_URING)' || { echo 'URING=1, and pkg-config does not find liburing: run tools/deps.sh' >&2; exit 1; }
	@test '$(strip $(CRYPTO))' != 1 || test -n '$(HAS_CRYPTO)' || { echo 'CRYPTO=1, and pkg-config does not find libcrypto: run tools/deps.sh' >&2; exit 1; }
	@test '$(strip $(PACK))' != 1 || test -n '$(HAS_PACK)' || { echo 'PACK=1, and pkg-config does not find $(NO_PACK): run tools/deps.sh' >&2; exit 1; }
	@test -z '$(NO_LIBS)' || { echo 'pkg-config does not find $(NO_LIBS): run tools/deps.sh, which installs what is missing or prints the command that does' >&2; exit 1; }
	@test '$(strip $(BLAS))' != 1 || test -n '$(HAS_BLAS)' || { echo 'BLAS=1, and pkg-config does not find openblas: tools/deps.sh --blas' >&2; exit 1; }
need-cmocka:
	@test -z '$(NO_CMOCKA)' || { echo 'The tests need cmocka, which pkg-config does not find: run tools/deps.sh' >&2; exit 1; }
need-cuda:
	@test -n '$(NVCC)' || { echo '$(if $(filter 0,$(CUDA)),CUDA=0: kernels for GPUs are not built,nvcc is neither on PATH nor below CUDA_HOME: install the CUDA toolkit (12.0 or later))' >&2; exit 1; }
need-mpi:
	@test '$(strip $(MPI))' != 1 || test -n "$(if $(MPI_CC),yes)" || { echo 'MPI=1, and neither pkg-config (ompi-c, mpich) nor mpicc is there: tools/deps.sh --mpi' >&2; exit 1; }
need-version:
	@test -n '$(VERSION)' || { echo 'libckpt/include/ckpt.h does not define CKPT_VERSION_STRING' >&2; exit 1; }
lib $(B)/$(SO): | need-version

# `demo` and `check` start on a bare machine: dependencies first, then a second
# make, which probes again.
AGAIN = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))
ENV   = ZCKPT='$(abspath $(B)/zckpt)' ZCKPT_BUILD='$(abspath $(B))' \
        ZCKPT_FIXTURES='$(abspath build/fixtures)' CC='$(CC)'
SCRIPTS := $(sort $(wildcard tests/*/test_*.sh tests/cli/*/*.sh tests/stories/*-[0-9]*.sh))
pick     = $(if $(strip $(T)),$(foreach t,$(1),$(if $(strip $(foreach w,$(T),$(findstring $(w),$(t)))),$(t))),$(1))

## demo: dependencies, build, then real checkpoints, and a training that is killed and goes on
demo: deps
	@tools/deps.sh --demo || echo 'The demo goes on without it.'
	@$(AGAIN) demo-here
demo-here: tools train fixtures
	@$(ENV) tools/demo.sh

## check: dependencies, build, every test that needs no network (T='word ...' picks)
check: deps
	@$(AGAIN) check-here
check-here: tools train fake fixtures $(B)/tests/bench/gen_zero $(B)/tests/bench/save_from $(FZ_TOOLS) \
            $(call pick,$(UNIT) $(API) $(ETEST)) \
            $(EMPI_TESTS)
	@$(ENV) tests/run-tests.sh -j $(JOBS) $(call pick,$(UNIT) $(API) $(ETEST) $(FTEST) $(SCRIPTS))

## check-gpu: the tests of the kernels for GPUs, on this machine's GPU
check-gpu: gpu
	@$(ENV) tests/run-tests.sh -j 1 $(call pick,$(GTEST))
## check-long: check with the long settings of every test, then interop likewise
check-long:
	@ZCKPT_LONG=1 $(MAKE) --no-print-directory check
	@ZCKPT_LONG=1 $(MAKE) --no-print-directory interop
	@if command -v '$(FUZZ_CC)' > /dev/null; then $(MAKE) --no-print-directory fuzz SECONDS=600; fi
## check-san: check under the address and undefined-behaviour sanitizers
check-san:
	@$(MAKE) --no-print-directory SAN=address,undefined DEVELOPER=1 check
## fuzz: look for inputs that break a target, with clang (FUZZ='zip pickle' SECONDS=600)
fuzz: deps fixtures
	@$(MAKE) --no-print-directory CC='$(FUZZ_CC)' CFLAGS='-O1 -g' $(FUZZ_SAN) fuzz-here
fuzz-here: fuzzer
	@$(ENV) tests/fuzz/fuzz.sh -t $(SECONDS) $(FUZZ)
## check-tree: layers, names, line lengths, headers that compile alone, exported symbols
check-tree:
	@$(AGAIN) check-tree-here
check-tree-here: lib $(B)/libztrain.a
	@ok=1; tests/lint/check-layers.sh || ok=0; tests/lint/check-symbols.sh $(B) || ok=0; tests/lint/check-findings.sh || ok=0; \
	tests/lint/check-limits.sh || ok=0; \
	CC='$(CC)' CPPFLAGS='$(ALL_CPPFLAGS)' tests/lint/check-names.sh $(B)/libckpt.a $(B)/$(SO) $(B)/libztrain.a $(wildcard $(B)/libztrain_cuda.a) || ok=0; \
	test $$ok = 1 || { echo 'check-tree: the tree is not in order, see above'; exit 1; }; \
	echo 'check-tree: layers, names, lengths, headers and exported symbols are in order'
## bench: timings against cp and zero_to_fp32 (BENCH='--quick' for a short run)
bench: tools train $(B)/tests/bench/loadloop $(if $(MPI_CC),$(B)/tests/engine/mpi_comm)
	@$(ENV) VENV="$${VENV-$${ZCKPT_VENV:-$$HOME/.cache/zckpt/venv}}" BENCH_DISK="$${BENCH_DISK:-build}" \
	    tests/bench/bench.sh $(BENCH)
## interop-bench: training, saving and loading next to PyTorch and DeepSpeed, in the kept venv
interop-bench: tools train $(B)/tests/bench/loadloop $(if $(MPI_CC),$(B)/tests/engine/mpi_comm)
	@sh tests/interop/setup-venv.sh "$${ZCKPT_VENV:-$$HOME/.cache/zckpt/venv}"
	@$(ENV) VENV="$${ZCKPT_VENV:-$$HOME/.cache/zckpt/venv}" BENCH_DISK="$${BENCH_DISK:-build}" \
	    tests/bench/bench.sh --rows '^(save|train)$$' $(BENCH)
## interop: against torch, safetensors, transformers and DeepSpeed in a kept venv
interop: tools train fixtures $(B)/tests/unit/test_pickle_emit $(B)/tests/bench/save_from
	@$(ENV) tests/run-interop.sh
## coverage: line coverage by `make check`, not below FLOOR percent in libckpt/ and in formats/
COVERAGE = $(MAKE) --no-print-directory CFLAGS='-O0 -g --coverage' LDFLAGS='$(LDFLAGS) --coverage'
coverage:
	@$(COVERAGE) coverage-clean
	@TEST_TIMEOUT=$${TEST_TIMEOUT:-1800} $(COVERAGE) check
	@$(COVERAGE) coverage-here
coverage-clean:
	@! test -d $(B) || find $(B) -name '*.gcda' -delete
coverage-here:
	@tests/coverage.sh -f $(FLOOR) $(B)
## dist-check: what git would ship builds, installs and can be linked against
dist-check:
	@tests/dist-check.sh

deps:
	@tools/deps.sh
fixtures:
	@tests/fixtures/unpack.sh build/fixtures

bindir := $(DESTDIR)$(PREFIX)/bin
incdir := $(DESTDIR)$(PREFIX)/include
libdir := $(DESTDIR)$(PREFIX)/lib
mandir := $(DESTDIR)$(PREFIX)/share/man
MAN    := $(sort $(wildcard docs/man/*.[1-9]))
PUBLIC := $(sort $(wildcard libckpt/include/*.h))

## install: headers, libraries, pkg-config file, program, manual (honours DESTDIR, PREFIX)
install: all
	install -d $(bindir) $(incdir) $(libdir)/pkgconfig
	install -m 644 $(PUBLIC) $(incdir)
	install -m 644 $(B)/libckpt.a $(libdir)
	install -m 755 $(B)/$(SO) $(libdir)
	ln -sfn $(SO) $(libdir)/$(SONAME)
	ln -sfn $(SO) $(libdir)/libckpt.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@PKGS@|$(LIB_PKGS)|' \
	    -e 's| *@PACK_LIBS@|$(if $(PACK_LIBS), $(PACK_LIBS))|' \
	    libckpt/libckpt.pc.in > $(libdir)/pkgconfig/libckpt.pc
	install -m 755 $(B)/zckpt $(if $(MPI_CC),$(B)/zckpt-mpi) $(B)/ztrain $(bindir)
	$(foreach m,$(MAN),install -D -m 644 $(m) $(mandir)/man$(patsubst .%,%,$(suffix $(m)))/$(notdir $(m)) && ) :
## uninstall: what install put there
uninstall:
	rm -f $(addprefix $(incdir)/,$(notdir $(PUBLIC))) $(libdir)/libckpt.a $(libdir)/$(SO) \
	    $(libdir)/$(SONAME) $(libdir)/libckpt.so $(libdir)/pkgconfig/libckpt.pc $(bindir)/zckpt $(bindir)/zckpt-mpi $(bindir)/ztrain \
	    $(foreach m,$(MAN),$(mandir)/man$(patsubst .%,%,$(suffix $(m)))/$(notdir $(m)))

## config: what was found, hence what is built
config:
	@printf '%-10s %s\n' version '$(VERSION)' compiler '$(CC)' flags '$(ALL_CFLAGS)' objects '$(B)' \
	    $(foreach p,$(LIB_PKGS) cmocka,$(p) '$(or $(shell $(PKG_CONFIG) --modversion $(p) 2>/dev/null),not found)') \
	    MPI '$(or $(shell $(PKG_CONFIG) --modversion $(MPI_PKG) 2>/dev/null),$(MPI_CC),not used)' \
	    packs '$(if $(HAS_PACK),$(foreach p,$(PACK_PKGS),$(p) $(shell $(PKG_CONFIG) --modversion $(p))),not built)' \
	    BLAS '$(if $(HAS_BLAS),openblas $(shell $(PKG_CONFIG) --modversion openblas 2>/dev/null),own loops)' \
	    CUDA '$(if $(NVCC),$(NVCC) for $(GPU_ARCH),not used)' \
	    NVMe '$(if $(HAS_URING),liburing $(shell $(PKG_CONFIG) --modversion liburing 2>/dev/null),threads)' \
	    secrets '$(if $(HAS_CRYPTO),libcrypto $(shell $(PKG_CONFIG) --modversion libcrypto),not used)' \
	    YAML '$(if $(HAS_YAML),libyaml $(shell $(PKG_CONFIG) --modversion yaml-0.1),not read)' \
	    prefix '$(PREFIX)' sources '$(words $(LIB_SRC)) library, $(words $(TOOL_SRC)) program, $(words $(TRAIN_SRC)) engine, $(words $(UNIT_SRC) $(API_SRC) $(ETEST_SRC)) test programs, $(words $(SCRIPTS)) test scripts'
## help: this list
help:
	@sed -n 's/^## \([a-z-]*\): /\1\t/p' Makefile | expand -t 14
	@echo; echo "Knobs: CC CFLAGS CPPFLAGS LDFLAGS PREFIX DESTDIR DEVELOPER=1 MPI=auto|0|1 PACK=auto|0|1 YAML=auto|0|1 URING=auto|0|1 BLAS=auto|0|1 CUDA=auto|0|1 GPU_ARCH='80 90' SAN=address,undefined T='words' FUZZ='targets' SECONDS BENCH=--quick V=1 JOBS"
## clean: remove build/
clean:
	rm -rf build

.PHONY: all lib train tools tests demo demo-here check check-here check-long check-san check-tree check-tree-here bench interop interop-bench \
	coverage coverage-clean coverage-here dist-check deps fixtures fuzz fuzz-here fuzzer install uninstall config help clean FORCE \
	need-libs need-cmocka need-cuda need-mpi need-version gpu check-gpu fake
.DELETE_ON_ERROR:
.SECONDARY:
-include $(OBJS:.o=.d)
