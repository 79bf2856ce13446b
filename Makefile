# zckpt -- `make help` lists the targets, `make config` what was found.
#
# Here: the knobs, the libraries and the programs.  Elsewhere:
#   mk/build.mk            flags, the object folder, how a file is compiled and a program linked
#   mk/probe.mk            outside libraries, MPI and CUDA: what is there
#   mk/install.mk          install, uninstall, dist-check
#   mk/portable.mk         static, bundle: programs and a library for other machines
#   mk/package.mk          dist, deb: the source archive, Debian packages
#   kernels/cuda/rules.mk  make gpu: kernels by nvcc, ztrain-gpu
#   tests/rules.mk         tests and how they run: check, fuzz, bench, interop, coverage

## all: build the library, the engine, zckpt and ztrain (default)
all: lib train tools

# Knobs: `?=` throughout, so the environment and the command line win.
CC        ?= cc
CFLAGS    ?= -O2 -g
PREFIX    ?= /usr/local
LIBDIR    ?= $(PREFIX)/lib
DESTDIR   ?=
DEVELOPER ?= 0#    1: warnings are errors
SAN       ?=#      e.g. SAN=address,undefined or SAN=thread
V         ?= 0#    1: show every command
JOBS      ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
# Of each of these: auto = where it is found, 1 = it must be found, 0 = without it.
MPI       ?= auto# zckpt-mpi for mpirun and srun; ranks of ztrain by MPI
PACK      ?= auto# packs (.tar.zst), by libarchive and libzstd
HTTP      ?= auto# zckpt serve, by libmicrohttpd
FUSE      ?= auto# zckpt mount, by libfuse3
URING     ?= auto# states on NVMe by io_uring, by liburing (else threads)
YAML      ?= auto# accelerate's YAML, by libyaml
CRYPTO    ?= auto# secrets of ranks that meet by TCP, by libcrypto
BLAS      ?= auto# matrix products of ztrain by OpenBLAS (else own loops)
CUDA      ?= auto# make gpu, make check-gpu, by nvcc
JSON      ?= auto# cJSON, of zckpt and ztrain: auto = libcjson, else third_party/cjson; or one of: system, bundled
GPU_ARCH  ?= 80 90# machine code for these (80 or more); later ones compile the PTX of the last at start

include mk/probe.mk mk/build.mk

VERSION := $(shell sed -n 's/^.define CKPT_VERSION_STRING "\(.*\)"/\1/p' libckpt/include/ckpt.h 2>/dev/null)
SONAME  := libckpt.so.0
SO      := libckpt.so.$(VERSION)

# Sources, by folder: a new file needs no line here.  What calls MPI or CUDA
# is apart, for programs that are to have it.
LIB_SRC := $(sort $(filter-out $(if $(HAS_PACK),,formats/archive/%), \
           $(wildcard libckpt/*/*.c formats/*.c formats/*/*.c kernels/ref/*.c kernels/cpu/*.c)))
# tools/shared is what zckpt and ztrain have in common.
SHARED_SRC      := $(sort $(wildcard tools/shared/*.c))
# tools/view is of serve (tools/http) and mount (tools/fuse).
VIEW_SRC        := $(wildcard $(if $(HAS_HTTP)$(HAS_FUSE),tools/view/*.c) $(if $(HAS_HTTP),tools/http/*.c) $(if $(HAS_FUSE),tools/fuse/*.c))
TOOL_SRC        := $(sort $(wildcard tools/*.c tools/report/*.c) $(VIEW_SRC) $(SHARED_SRC))
ZTRAIN_SRC      := $(sort $(wildcard engine/main/*.c))
ENGINE_SRC      := $(wildcard engine/*.c engine/*/*.c engine/*/*/*.c)
ENGINE_MPI_SRC  := $(filter %/en_comm_mpi.c,$(ENGINE_SRC))
ENGINE_CUDA_SRC := $(sort $(foreach f,$(ENGINE_SRC),$(if $(filter en_cuda_%,$(notdir $(f))),$(f))))
TRAIN_SRC := $(sort $(filter-out $(ZTRAIN_SRC) $(ENGINE_MPI_SRC) $(ENGINE_CUDA_SRC),$(ENGINE_SRC) \
             $(wildcard kernels/cpu/train/*.c)))
# Tables of names (formats/megatron/maps, libckpt/naming/maps), as strings in C.
MAPS      := $(B)/formats/megatron/maps $(B)/libckpt/naming/maps
LIB       := $(call objects,$(LIB_SRC)) $(MAPS:=.o)
# Style and scripts of pages (HTML), as strings in C.
PAGE      := $(call page_parts,tools/shared/page)
PAGE_ZTRAIN := $(call page_parts,engine/main/page)
PAGE_REPORT := $(call page_parts,tools/report/page)
TOOL      := $(call objects,$(TOOL_SRC)) $(B)/tools/findings.o $(PAGE) $(PAGE_REPORT)
TOOL_MPI  := $(TOOL:%/cli_mpi.o=%/cli_mpi.mpi.o)
TRAIN     := $(call objects,$(TRAIN_SRC))
TRAIN_MPI := $(ENGINE_MPI_SRC:%.c=$(B)/%.mpi.o)
ZTRAIN    := $(call objects,$(ZTRAIN_SRC) $(SHARED_SRC)) $(PAGE) $(PAGE_ZTRAIN)
OBJS      := $(B)/third_party/cjson/cJSON.o $(LIB) $(TOOL) $(TOOL_MPI) $(TRAIN) $(TRAIN_MPI) $(ZTRAIN)

# What a folder may include is partly a matter of flags: the program and the
# API tests are compiled without -I., so they cannot reach an internal header.
INC := -I. -Ilibckpt/include -Ikernels/include
$(TOOL) $(TOOL_MPI):                                   INC = -Ilibckpt/include
$(filter %/cmd_serve.o %/cmd_mount.o,$(TOOL) $(TOOL_MPI)) $(call objects,$(VIEW_SRC)): INC += $(VIEW_CPPFLAGS)
$(filter %/kn_gemm.o %/kn_gemm_bf16.o,$(TRAIN)):       INC += $(BLAS_CFLAGS)
$(filter %/en_nvme_uring.o,$(TRAIN)):                  INC += $(URING_CFLAGS)
$(filter %/en_nvme_uring.o,$(TRAIN)): $(B)/uring.list
$(filter %/en_secret_tag.o,$(TRAIN)):                  INC += $(CRYPTO_CFLAGS)
$(filter %/en_secret_tag.o,$(TRAIN)): $(B)/crypto.list
$(TOOL) $(TOOL_MPI) $(TRAIN_MPI): | need-mpi

$(B)/formats/megatron/maps.c: MAP = -v header=formats/megatron/mg_map.h -v made=ck_mg_map_text
$(B)/libckpt/naming/maps.c:   MAP = -v header=libckpt/naming/ck_naming.h -v made=ck_naming_text
$(MAPS:=.list): NAMES = $(sort $(wildcard $(@:$(B)/%.list=%)/*.map))
$(MAPS:=.c): $(B)/%.c: $(B)/%.list mk/maps.awk
	@mkdir -p $(@D) && printf '  %-5s %s\n' GEN $@
	$(Q)LC_ALL=C awk $(MAP) -f mk/maps.awk $(sort $(wildcard $*/*.map)) > $@
$(B)/formats/megatron/maps.c: $(sort $(wildcard formats/megatron/maps/*.map))
$(B)/libckpt/naming/maps.c: $(sort $(wildcard libckpt/naming/maps/*.map))
$(B)/formats/megatron/maps.o: formats/megatron/mg_map.h
$(B)/libckpt/naming/maps.o: libckpt/naming/ck_naming.h
$(MAPS:=.o): %.o: %.c | need-libs
	$(Q)$(CC) $(ALL_CPPFLAGS) $(INC) $(ALL_CFLAGS) -c -o $@ $<

# The pages of `zckpt explain` are docs/findings.md, as a table in C.
$(B)/tools/findings.c: docs/findings.md tools/findings.awk
	@mkdir -p $(@D) && printf '  %-5s %s\n' GEN $@
	$(Q)LC_ALL=C awk -f tools/findings.awk docs/findings.md > $@
$(B)/tools/findings.o: $(B)/tools/findings.c tools/cli_explain.h
	$(Q)$(CC) $(ALL_CPPFLAGS) -Itools $(ALL_CFLAGS) -c -o $@ $<

$(eval $(call page,tools/shared/page,tools/shared/cli_page.h))
$(eval $(call page,engine/main/page,engine/main/zt_page.h))
$(eval $(call page,tools/report/page,tools/report/rep_page.h))

## lib: build the library, static and shared
lib: $(B)/libckpt.a $(B)/libckpt.so
## train: build the training engine (libztrain.a; with MPI also libztrain_mpi.a) and ztrain
train: $(B)/libztrain.a $(if $(MPI_CC),$(B)/libztrain_mpi.a) $(B)/ztrain | need-mpi
	@ln -sfn $(notdir $(B))/ztrain build/ztrain
## tools: build zckpt, and zckpt-mpi if MPI is found; build/zckpt links to the latest build
tools: $(B)/zckpt $(if $(MPI_CC),$(B)/zckpt-mpi) | need-mpi
	@$(if $(MPI_CC),:,rm -f $(B)/zckpt-mpi)
	@ln -sfn $(notdir $(B))/zckpt build/zckpt

TRAIN_LIBS := $(JSON_LIBS) $(ENGINE_LIBS) $(LIB_LIBS) $(BLAS_LIBS)
ZTRAIN_MPI := $(ZTRAIN) $(if $(MPI_CC),$(B)/libztrain_mpi.a)
$(eval $(call archive,$(B)/libckpt.a,$(LIB)))
$(eval $(call archive,$(B)/libztrain.a,$(TRAIN)))
$(eval $(call archive,$(B)/libztrain_mpi.a,$(TRAIN_MPI)))
# The code of others is as its authors release it: their warnings are not ours.
$(eval $(call archive,$(B)/libcjson.a,$(B)/third_party/cjson/cJSON.o))
$(B)/third_party/cjson/cJSON.o: INC = -DCJSON_HIDE_SYMBOLS
$(B)/third_party/cjson/cJSON.o: ALL_CFLAGS += -w
$(eval $(call program,$(B)/zckpt,$(TOOL) $(B)/tool.list $(B)/libckpt.a,$(JSON_LIBS) $(LIB_LIBS) $(VIEW_LIBS)))
$(eval $(call program,$(B)/zckpt-mpi,$(TOOL_MPI) $(B)/tool.list $(B)/libckpt.a,$(JSON_LIBS) $(LIB_LIBS) $(VIEW_LIBS) $(MPI_LIBS),$(MPI_CC)))
$(eval $(call program,$(B)/ztrain,$(ZTRAIN_MPI) $(B)/libztrain.a $(B)/libckpt.a,$(TRAIN_LIBS) $(MPI_LIBS),$(MPI_CC)))
lib $(B)/$(SO): | need-version
$(B)/$(SO): $(LIB) $(B)/libckpt.list libckpt/libckpt.map
	@printf '  %-5s %s\n' LD $@
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=libckpt/libckpt.map \
	    $(if $(strip $(SAN)),,-Wl,-z,defs) $(ALL_LDFLAGS) -o $@ $(LIB) $(LIB_LIBS)
$(B)/libckpt.so: $(B)/$(SO)
	$(Q)ln -sfn $(SO) $(B)/$(SONAME) && ln -sfn $(SO) $@

## examples: the programs of examples/, linked with the shared library, in build/examples
EXAMPLES := $(patsubst %.c,$(B)/%,$(sort $(wildcard examples/*.c)))
$(EXAMPLES:=.o): INC = -Ilibckpt/include
$(eval $(call program,$(EXAMPLES): %,%.o $(B)/libckpt.so,-Wl$(comma)-rpath$(comma)$(abspath $(B))))
examples: $(EXAMPLES)
	@ln -sfn $(notdir $(B))/examples build/examples
OBJS += $(EXAMPLES:=.o)

$(B)/tool.list:   NAMES = $(TOOL)
$(B)/uring.list:  NAMES = $(HAS_URING)
$(B)/crypto.list: NAMES = $(HAS_CRYPTO)

include kernels/cuda/rules.mk tests/rules.mk mk/install.mk mk/portable.mk mk/package.mk

PARTS := Makefile kernels/cuda/rules.mk tests/rules.mk mk/install.mk mk/portable.mk mk/package.mk mk/probe.mk
## help: print this list
help:
	@sed -n 's/^## \([a-z-]*\): /\1\t/p' $(PARTS) | expand -t 14
	@printf '%s\n' '' 'Variables (make NAME=VALUE):' \
	    '  CC CFLAGS CPPFLAGS LDFLAGS PREFIX LIBDIR DESTDIR JOBS    as usual; JOBS is the number of parallel jobs' \
	    '  V=1                 print every command' \
	    '  DEVELOPER=1         treat warnings as errors' \
	    '  SAN=LIST            sanitizers: address,undefined or thread' \
	    '  MPI PACK HTTP FUSE YAML URING CRYPTO BLAS CUDA    auto: use if found; 1: require; 0: build without' \
	    '  JSON=bundled        compile third_party/cjson, also where libcjson is found (system: require it)' \
	    '  GPU_ARCH="80 90"    GPU architectures' \
	    '  T="WORD..."         run only tests whose path contains one of the words' \
	    '  FUZZ="TARGET..."    fuzz only these targets, each for SECONDS' \
	    '  BENCH=OPTIONS       options of tests/bench/bench.sh, for example --quick'
## clean: remove build/
clean:
	rm -rf build

.PHONY: all lib train tools examples help clean
-include $(OBJS:.o=.d)
