# rules.mk -- read by the Makefile: the programs of tests/ and how they run.
T         ?=#      make check T='zip cli/convert': only tests whose path has one of these words
FUZZ      ?=#      make fuzz FUZZ='zip pickle' SECONDS=600: only these targets, so long each
SECONDS   ?= 60
FUZZ_CC   ?= clang
FUZZ_SAN  := SAN=address,undefined,fuzzer-no-link
FLOOR     ?= 90#   percent, of make coverage
BENCH     ?=#      options of tests/bench/bench.sh

# libtests.a: what tests share.
TLIB_SRC := $(sort $(filter-out $(if $(HAS_PACK),,%/t_pack.c),$(wildcard tests/lib/*.c tests/lib/*/*.c)))
TLIB     := $(call objects,$(TLIB_SRC))
$(eval $(call archive,$(B)/libtests.a,$(TLIB)))
TEST_LIBS := $(CMOCKA_LIBS) $(JSON_LIBS) $(LIB_LIBS)

# libshared.a: tools/shared, for tests of it.
$(eval $(call archive,$(B)/libshared.a,$(call objects,$(SHARED_SRC)) $(PAGE)))

# Of the library, white box.
UNIT_SRC := $(sort $(filter-out $(if $(HAS_PACK),,tests/unit/test_pack% tests/torture/test_torture_pack.c), \
            $(wildcard tests/unit/test_*.c tests/torture/test_*.c tests/cli/test_*.c)))
UNIT     := $(UNIT_SRC:%.c=$(B)/%)
$(eval $(call program,$(UNIT): %,%.o $(B)/libtests.a $(B)/libshared.a $(B)/libckpt.a,$(TEST_LIBS)))

# Of the public headers. They link the shared library: a function that is declared and
# not exported fails here. tests/lib offers them only what needs no ck_* name.
API_SRC := $(sort $(wildcard tests/api/test_*.c))
API     := $(API_SRC:%.c=$(B)/%)
$(eval $(call program,$(API): %,%.o $(B)/libtests.a $(B)/libckpt.so,-Wl$(comma)-rpath$(comma)$(abspath $(B)) $(TEST_LIBS)))

# libref.a: plain laws in double and a model in one process, which results are compared with.
REF := $(call objects,$(sort $(wildcard tests/ref/*.c)))
$(eval $(call archive,$(B)/libref.a,$(REF)))

# Of the engine, and what is timed by hand (bench_*).
ETEST_SRC := $(sort $(wildcard tests/engine/test_*.c))
ETEST     := $(ETEST_SRC:%.c=$(B)/%)
ETIMERS   := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/engine/bench_*.c)))
ETLIB     := $(call objects,$(sort $(wildcard tests/engine/te_*.c)))
$(eval $(call program,$(ETEST) $(ETIMERS): %,%.o $(ETLIB) $(B)/libtests.a $(B)/libref.a $(B)/libztrain.a $(B)/libckpt.a,$(CMOCKA_LIBS) $(JSON_LIBS) $(TRAIN_LIBS)))

# Of the engine under mpirun.  ztrain_watched is ztrain from its own objects, relinked: for each
# function NAME below, --wrap sends calls from other files to __wrap_NAME() in
# tests/engine/watch_*.c, which counts the call, kills the rank there if the test asks for it, and
# calls __real_NAME(), the engine's.  So test_ztrain_deaths.sh can stop a rank in each phase of a
# step, and test_ztrain_traffic.sh can count messages, with no hook in the engine.  One more: its
# name here, and a WATCH_WRAP() in watch_*.c (watch.h).
MPI_TEST := $(patsubst %.c,$(B)/%.mpi.o,$(sort $(wildcard tests/engine/mpi_*.c)))
WATCH    := $(patsubst %.c,$(B)/%.mpi.o,$(sort $(wildcard tests/engine/watch_*.c)))
WATCHED  := en_comm_all_gather en_comm_gather_small en_comm_reduce_scatter en_comm_all_reduce en_comm_broadcast \
            en_comm_barrier en_comm_mpi_open en_run en_layer_forward en_layer_backward en_zero_update \
            ckpt_save_begin ckpt_save_put ckpt_save_wait
MPI_TESTS := $(if $(MPI_CC),$(B)/tests/engine/mpi_comm $(B)/tests/engine/ztrain_watched)
MPI_ENGINE := $(B)/libztrain_mpi.a $(B)/libztrain.a $(B)/libckpt.a
$(eval $(call program,$(B)/tests/engine/mpi_comm,$(MPI_TEST) $(MPI_ENGINE),$(TRAIN_LIBS) $(MPI_LIBS),$(MPI_CC)))
$(eval $(call program,$(B)/tests/engine/ztrain_watched,$(ZTRAIN) $(WATCH) $(MPI_ENGINE),$(TRAIN_LIBS) $(MPI_LIBS) \
	$(WATCHED:%=-Wl$(comma)--wrap=%),$(MPI_CC)))
$(MPI_TEST) $(WATCH): | need-mpi

# Of the kernels for GPUs; they need nvcc to build, and a GPU to run.
GTEST := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/gpu/test_cuda_*.c)))
GTLIB := $(call objects,$(sort $(wildcard tests/gpu/tg_*.c)))
$(eval $(call program,$(GTEST): %,%.o $(GTLIB) $(CUDA_OBJ) $(B)/libref.a $(B)/libztrain.a $(B)/libckpt.a,-Wl$(comma)--as-needed \
	$(ENGINE_LIBS) $(LIB_LIBS) $(CUDA_LIBS) $(BLAS_LIBS) -lm))
$(GTLIB) $(GTEST:=.o): INC += $(CUDA_CFLAGS)
$(GTLIB) $(GTEST:=.o): | need-cuda
gpu: $(GTEST)

# Of the engine on simulated GPUs: CUDA, NCCL and the kernels on a CPU (tests/gpusim/README.md),
# and the engine's part for CUDA compiled for them.
GPUSIM := $(patsubst %.c,$(B)/gpusim/%.o,$(sort $(wildcard tests/gpusim/*.c) $(ENGINE_CUDA_SRC)) kernels/cuda/kn_cu_embed_list.c)
GPUSIM_TEST := $(addprefix $(B)/gpusim/tests/gpu/,test_cuda_engine test_cuda_offload test_cuda_save test_gpusim)
$(eval $(call program,$(B)/ztrain-gpusim,$(ZTRAIN_MPI) $(GPUSIM) $(B)/libztrain.a $(B)/libckpt.a,$(TRAIN_LIBS) $(MPI_LIBS),$(MPI_CC)))
$(eval $(call program,$(GPUSIM_TEST): %,%.o $(GPUSIM) $(B)/libztrain.a $(B)/libckpt.a,$(TRAIN_LIBS)))
$(GPUSIM) $(GPUSIM_TEST:=.o): INC = -isystem tests/gpusim/include -I. -Ilibckpt/include -Ikernels/include
$(GPUSIM_TEST:=.o): INC += -DWAYS=1
$(B)/gpusim/%.o: %.c | need-libs
	@mkdir -p $(@D) && printf '  %-5s %s\n' CC '$< (gpusim)'
	$(Q)$(CC) $(ALL_CPPFLAGS) $(INC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Timers of tests/bench, and the fuzz targets: any compiler replays, clang's
# libFuzzer finds (docs/internals/fuzzing.md).
TIMERS   := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/bench/*.c)))
FUZZ_SRC := $(sort $(filter-out $(if $(HAS_PACK),,tests/fuzz/fz_t_pack.c),$(wildcard tests/fuzz/*.c)))
FZ       := $(call objects,$(filter-out %/fz_fuzzer.c %/fz_replay.c %/fz_pack.c,$(FUZZ_SRC)))
FZ_TOOLS := $(B)/tests/fuzz/fz_replay $(B)/tests/fuzz/fz_pack
FZ_NEEDS := $(FZ) $(B)/libtests.a $(B)/libztrain.a $(B)/libckpt.a
$(eval $(call program,$(TIMERS): %,%.o $(B)/libckpt.a,$(LIB_LIBS)))
$(eval $(call program,$(FZ_TOOLS): %,%.o $(FZ_NEEDS),$(JSON_LIBS) $(ENGINE_LIBS) $(LIB_LIBS)))
$(eval $(call program,$(B)/fuzzer,$(B)/tests/fuzz/fz_fuzzer.o $(FZ_NEEDS),-fsanitize=fuzzer $(JSON_LIBS) $(ENGINE_LIBS) $(LIB_LIBS)))
fuzzer: $(B)/fuzzer $(FZ_TOOLS) $(B)/zckpt

WITH_CMOCKA := $(TLIB) $(UNIT:=.o) $(ETLIB) $(ETEST:=.o) $(ETIMERS:=.o) $(TIMERS:=.o) $(call objects,$(FUZZ_SRC))
$(WITH_CMOCKA): INC += $(CMOCKA_CFLAGS)
$(API:=.o):     INC = -Ilibckpt/include $(CMOCKA_CFLAGS)
$(UNIT:=.o) $(API:=.o) $(ETEST:=.o): | need-cmocka
OBJS += $(REF) $(WITH_CMOCKA) $(API:=.o) $(MPI_TEST) $(WATCH) $(GTLIB) $(GTEST:=.o) $(GPUSIM) $(GPUSIM_TEST:=.o)

## tests: build the test and bench programs
tests: gpusim $(UNIT) $(API) $(ETEST) $(ETIMERS) $(TIMERS) $(FZ_TOOLS) $(MPI_TESTS)
## gpusim: build build/ztrain-gpusim: ztrain linked with a simulated CUDA and NCCL (needs no GPU)
gpusim: $(B)/ztrain-gpusim $(GPUSIM_TEST) | need-mpi
	@ln -sfn $(notdir $(B))/ztrain-gpusim build/ztrain-gpusim
fake: gpusim

# `demo` and `check` start on a bare machine: dependencies first, then a second
# make, which probes again.
AGAIN = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))
ENV   = ZCKPT='$(abspath $(B)/zckpt)' ZCKPT_BUILD='$(abspath $(B))' \
        ZCKPT_FIXTURES='$(abspath build/fixtures)' CC='$(CC)'
SCRIPTS := $(sort $(wildcard tests/*/test_*.sh tests/cli/*/*.sh tests/stories/*-[0-9]*.sh))
pick     = $(if $(strip $(T)),$(foreach t,$(1),$(if $(strip $(foreach w,$(T),$(findstring $(w),$(t)))),$(t))),$(1))

## demo: install dependencies, build, convert real checkpoints, kill and resume a training run
demo: deps
	@tools/deps.sh --demo || echo 'The demo continues without them.'
	@$(AGAIN) demo-here
demo-here: tools train fixtures
	@$(ENV) tools/demo.sh

## check: install dependencies, build, run all tests that need no network (T='word ...' selects)
check: deps
	@$(AGAIN) check-here
check-here: tools train examples gpusim fixtures $(B)/tests/bench/gen_zero $(B)/tests/bench/save_from $(FZ_TOOLS) \
            $(call pick,$(UNIT) $(API) $(ETEST)) \
            $(MPI_TESTS)
	@$(ENV) tests/run-tests.sh -j $(JOBS) $(call pick,$(UNIT) $(API) $(ETEST) $(GPUSIM_TEST) $(SCRIPTS))

## check-gpu: test the GPU kernels on this machine's GPU
check-gpu: gpu
	@$(ENV) tests/run-tests.sh -j 1 $(call pick,$(GTEST))
## check-long: run check and interop with the long settings of every test
check-long:
	@ZCKPT_LONG=1 $(MAKE) --no-print-directory check
	@ZCKPT_LONG=1 $(MAKE) --no-print-directory interop
	@if command -v '$(FUZZ_CC)' > /dev/null; then $(MAKE) --no-print-directory fuzz SECONDS=600; fi
## check-san: run check under the address and undefined-behaviour sanitizers
check-san:
	@$(MAKE) --no-print-directory SAN=address,undefined DEVELOPER=1 check
## fuzz: fuzz the parsers with clang (FUZZ='zip pickle' SECONDS=600)
fuzz: deps fixtures
	@$(MAKE) --no-print-directory CC='$(FUZZ_CC)' CFLAGS='-O1 -g' $(FUZZ_SAN) fuzz-here
fuzz-here: fuzzer
	@$(ENV) tests/fuzz/fuzz.sh -t $(SECONDS) $(FUZZ)
## check-tree: check layers, names, lengths, messages, words, headers and exported symbols
check-tree:
	@$(AGAIN) check-tree-here
check-tree-here: lib $(B)/libztrain.a
	@ok=1; tests/lint/check-layers.sh || ok=0; tests/lint/check-symbols.sh $(B) || ok=0; tests/lint/check-findings.sh || ok=0; \
	tests/lint/check-limits.sh || ok=0; tests/lint/check-messages.sh || ok=0; tests/lint/check-words.sh || ok=0; tests/lint/check-mentions.sh || ok=0; tests/lint/check-prose.sh || ok=0; \
	CC='$(CC)' CPPFLAGS='$(ALL_CPPFLAGS)' tests/lint/check-names.sh $(B)/libckpt.a $(B)/$(SO) $(B)/libztrain.a $(wildcard $(B)/libztrain_cuda.a) || ok=0; \
	test $$ok = 1 || { echo 'check-tree: errors, see above'; exit 1; }; \
	echo 'check-tree: layers, names, lengths, messages, words, headers and exported symbols are correct'
## bench: time against cp and zero_to_fp32 (BENCH='--quick' for a short run)
bench: tools train $(B)/tests/bench/loadloop $(if $(MPI_CC),$(B)/tests/engine/mpi_comm)
	@$(ENV) VENV="$${VENV-$${ZCKPT_VENV:-$$HOME/.cache/zckpt/venv}}" BENCH_DISK="$${BENCH_DISK:-build}" \
	    tests/bench/bench.sh $(BENCH)
## interop-bench: time training, saving and loading against PyTorch and DeepSpeed
interop-bench: tools train $(B)/tests/bench/loadloop $(if $(MPI_CC),$(B)/tests/engine/mpi_comm)
	@sh tests/interop/setup-venv.sh "$${ZCKPT_VENV:-$$HOME/.cache/zckpt/venv}"
	@$(ENV) VENV="$${ZCKPT_VENV:-$$HOME/.cache/zckpt/venv}" BENCH_DISK="$${BENCH_DISK:-build}" \
	    tests/bench/bench.sh --rows '^(save|train)$$' $(BENCH)
## interop: test against torch, safetensors, transformers and DeepSpeed (in a venv that is kept)
interop: lib tools train fixtures $(B)/tests/unit/test_pickle_emit $(B)/tests/bench/save_from
	@$(ENV) tests/run-interop.sh
## coverage: measure line coverage of make check; at least FLOOR percent in libckpt/ and formats/
COVERAGE = $(MAKE) --no-print-directory CFLAGS='-O0 -g --coverage' LDFLAGS='$(LDFLAGS) --coverage'
coverage:
	@$(COVERAGE) coverage-clean
	@TEST_TIMEOUT=$${TEST_TIMEOUT:-1800} $(COVERAGE) check
	@$(COVERAGE) coverage-here
coverage-clean:
	@! test -d $(B) || find $(B) -name '*.gcda' -delete
coverage-here:
	@tests/coverage.sh -f $(FLOOR) $(B)

deps:
	@tools/deps.sh
fixtures:
	@tests/fixtures/unpack.sh build/fixtures

.PHONY: tests gpusim fake demo demo-here check check-here check-gpu check-long check-san fuzz fuzz-here fuzzer check-tree \
	check-tree-here bench interop-bench interop coverage coverage-clean coverage-here deps fixtures
