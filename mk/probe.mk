# probe.mk -- read by the Makefile: outside libraries, MPI and CUDA.  What is
# missing is reported when something needs it (the targets need-*), so that
# `make help` works without any.  Sets
#   PROBE_CPPFLAGS                what every compile gets
#   LIB_LIBS ENGINE_LIBS JSON_LIBS  what libckpt, the engine, and the programs and tests link
#   HAS_x x_CFLAGS x_LIBS         of the parts that are built with or without x
#   JSON_OWN                      'yes' where third_party/cjson is compiled
PKG_CONFIG ?= pkg-config
has_pkg     = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo yes)
cflags      = $(shell $(PKG_CONFIG) --cflags $(1))
libs        = $(shell $(PKG_CONFIG) --libs $(1))
# Headers that are not ours may warn.
system      = $(patsubst -I%,-isystem %,$(call cflags,$(1)))
# $(call wanted,KNOB,PACKAGES): 'yes' where the knob is not 0 and all of them are found.
wanted      = $(if $(filter 0,$(strip $($(1)))),,$(if $(strip $(foreach p,$(2),$(if $(call has_pkg,$(p)),,no))),,yes))

# libckpt and the engine have no use of cJSON: it is of the programs and the tests.  Where the system has
# none, the copy in third_party is compiled; $(B) is of build.mk, so JSON_LIBS is expanded late.
LIB_PKGS  := libxxhash libdeflate
JSON_OWN  := $(if $(filter bundled,$(JSON))$(if $(filter system,$(JSON))$(call has_pkg,libcjson),,no),yes)
JSON_PKG  := $(if $(JSON_OWN),,libcjson)
NO_LIBS   := $(strip $(foreach p,$(LIB_PKGS) $(JSON_PKG),$(if $(call has_pkg,$(p)),,$(p))))
NO_CMOCKA := $(if $(call has_pkg,cmocka),,cmocka)
ifeq ($(NO_LIBS),)
PROBE_CPPFLAGS := $(call cflags,$(LIB_PKGS) $(JSON_PKG)) $(if $(JSON_OWN),-isystem third_party -isystem third_party/cjson)
LIB_LIBS       := $(call libs,$(LIB_PKGS)) -lm
JSON_LIBS       = $(if $(JSON_OWN),$(B)/libcjson.a,$(call libs,$(JSON_PKG)))
endif
ifeq ($(NO_CMOCKA),)
CMOCKA_CFLAGS := $(call cflags,cmocka)
CMOCKA_LIBS   := $(call libs,cmocka)
endif

# Packs take two more libraries; without them the verbs say so.  They are not
# "Requires.private" of libckpt.pc: a static libarchive would want all that it can use.
PACK_PKGS := libarchive libzstd
HAS_PACK  := $(call wanted,PACK,$(PACK_PKGS))
ifneq ($(HAS_PACK),)
PROBE_CPPFLAGS += -DCKPT_PACKS=1 $(call system,$(PACK_PKGS))
PACK_LIBS      := $(strip $(call libs,$(PACK_PKGS)))
LIB_LIBS       += $(PACK_LIBS)
endif

# zckpt serve takes libmicrohttpd, zckpt mount takes libfuse3; without them the verbs say so.
HAS_HTTP  := $(call wanted,HTTP,libmicrohttpd)
HAS_FUSE  := $(call wanted,FUSE,fuse3)
ifneq ($(HAS_HTTP),)
VIEW_CPPFLAGS += -DZCKPT_HTTP=1 $(call system,libmicrohttpd)
VIEW_LIBS     += $(call libs,libmicrohttpd)
endif
ifneq ($(HAS_FUSE),)
VIEW_CPPFLAGS += -DZCKPT_FUSE=1 $(call system,fuse3)
VIEW_LIBS     += $(call libs,fuse3)
endif

ENGINE_LIBS :=
# The engine reads accelerate's YAML with libyaml; without it, it says so.
HAS_YAML := $(call wanted,YAML,yaml-0.1)
ifneq ($(HAS_YAML),)
PROBE_CPPFLAGS += -DEN_YAML=1 $(call system,yaml-0.1)
ENGINE_LIBS    += $(call libs,yaml-0.1)
endif

# States on NVMe go through io_uring; without liburing, threads read and write them.
HAS_URING := $(call wanted,URING,liburing)
ifneq ($(HAS_URING),)
URING_CFLAGS := -DEN_URING=1 $(call system,liburing)
ENGINE_LIBS  += $(call libs,liburing)
endif

# Ranks that meet by TCP prove with HMAC-SHA256 that they know the secret of
# their job; without libcrypto, no secret can be used.
HAS_CRYPTO := $(call wanted,CRYPTO,libcrypto)
ifneq ($(HAS_CRYPTO),)
CRYPTO_CFLAGS := -DEN_CRYPTO=1 $(call system,libcrypto)
ENGINE_LIBS   += $(call libs,libcrypto)
endif

# OpenBLAS multiplies matrices for the engine; kn_gemm.c alone calls it, kn_gemm_bf16.c asks whether it is there.
HAS_BLAS := $(call wanted,BLAS,openblas)
ifneq ($(HAS_BLAS),)
BLAS_CFLAGS := -DKN_OPENBLAS=1 $(call system,openblas)
BLAS_LIBS   := $(call libs,openblas)
endif

# nvcc from PATH, or of the toolkit's folder; for `make gpu` alone.
ifneq ($(strip $(CUDA)),0)
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard $(CUDA_HOME)/bin/nvcc))
endif
ifneq ($(NVCC),)
CUDA_DIR    := $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC)))))
CUDA_CFLAGS := -isystem $(CUDA_DIR)/include
CUDA_LIBS   := -L$(CUDA_DIR)/lib64 -Wl,-rpath,$(CUDA_DIR)/lib64 -lcudart -lcublasLt -lnccl -ldl -lstdc++
endif

# MPI is for zckpt-mpi and the engine's ranks: pkg-config, else the wrapper mpicc around our own compiler.
ifneq ($(strip $(MPI)),0)
MPI_PKG := $(firstword $(foreach p,ompi-c mpich,$(if $(call has_pkg,$(p)),$(p))))
ifneq ($(MPI_PKG),)
MPI_CC     := $(CC)
MPI_CFLAGS := $(call system,$(MPI_PKG))
MPI_LIBS   := $(call libs,$(MPI_PKG))
else ifneq ($(shell command -v mpicc 2>/dev/null),)
MPI_CC     := OMPI_CC='$(CC)' MPICH_CC='$(CC)' mpicc
endif
endif

# $(call must,KNOB,PACKAGES,HINT): a line of need-libs, which fails where KNOB=1 and it is not found.
must = @test '$(strip $($(1)))' != 1 || test -n '$(HAS_$(1))' || { echo '$(1)=1, but pkg-config does not find $(2): $(or $(3),run tools/deps.sh)' >&2; exit 1; }
need-libs:
	$(call must,YAML,yaml-0.1)
	$(call must,URING,liburing)
	$(call must,CRYPTO,libcrypto)
	$(call must,HTTP,libmicrohttpd,run tools/deps.sh --views)
	$(call must,FUSE,fuse3,run tools/deps.sh --views)
	$(call must,PACK,$(strip $(foreach p,$(PACK_PKGS),$(if $(call has_pkg,$(p)),,$(p)))))
	@test -z '$(NO_LIBS)' || { echo 'missing libraries: $(NO_LIBS). Run tools/deps.sh, which installs them or prints the command' >&2; exit 1; }
	$(call must,BLAS,openblas,run tools/deps.sh --blas)
need-cmocka:
	@test -z '$(NO_CMOCKA)' || { echo 'missing library: cmocka, which the tests need. Run tools/deps.sh' >&2; exit 1; }
need-cuda:
	@test -n '$(NVCC)' || { echo '$(if $(filter 0,$(CUDA)),CUDA=0: GPU kernels are not built,nvcc is neither on PATH nor in CUDA_HOME: install the CUDA toolkit (12.0 or later))' >&2; exit 1; }
need-mpi:
	@test '$(strip $(MPI))' != 1 || test -n "$(if $(MPI_CC),yes)" || { echo 'MPI=1, but neither pkg-config (ompi-c, mpich) nor mpicc finds MPI: run tools/deps.sh --mpi' >&2; exit 1; }
need-version:
	@test -n '$(VERSION)' || { echo 'libckpt/include/ckpt.h does not define CKPT_VERSION_STRING' >&2; exit 1; }

version_of = $(shell $(PKG_CONFIG) --modversion $(1) 2>/dev/null)
## config: print which libraries were found and what is built
config:
	@printf '%-10s %s\n' version '$(VERSION)' compiler '$(CC)' flags '$(ALL_CFLAGS)' objects '$(B)' \
	    $(foreach p,$(LIB_PKGS) cmocka,$(p) '$(or $(call version_of,$(p)),not found)') \
	    libcjson '$(if $(JSON_OWN),third_party/cjson,$(or $(call version_of,$(JSON_PKG)),not found))' \
	    MPI '$(or $(call version_of,$(MPI_PKG)),$(MPI_CC),not used)' \
	    packs '$(if $(HAS_PACK),$(foreach p,$(PACK_PKGS),$(p) $(call version_of,$(p))),not built)' \
	    serve '$(if $(HAS_HTTP),libmicrohttpd $(call version_of,libmicrohttpd),not built)' \
	    mount '$(if $(HAS_FUSE),libfuse3 $(call version_of,fuse3),not built)' \
	    BLAS '$(if $(HAS_BLAS),openblas $(call version_of,openblas),own loops)' \
	    CUDA '$(if $(NVCC),$(NVCC) for $(GPU_ARCH),not used)' \
	    NVMe '$(if $(HAS_URING),liburing $(call version_of,liburing),threads)' \
	    secrets '$(if $(HAS_CRYPTO),libcrypto $(call version_of,libcrypto),not used)' \
	    YAML '$(if $(HAS_YAML),libyaml $(call version_of,yaml-0.1),not read)' \
	    prefix '$(PREFIX)' sources '$(words $(LIB_SRC)) library, $(words $(TOOL_SRC)) program, $(words $(TRAIN_SRC)) engine, $(words $(UNIT_SRC) $(API_SRC) $(ETEST_SRC)) test programs, $(words $(SCRIPTS)) test scripts'

.PHONY: need-libs need-cmocka need-cuda need-mpi need-version config
