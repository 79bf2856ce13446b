# portable.mk -- read by the Makefile: what is copied to other machines.
#   make static    zckpt and ztrain, which need nothing but a kernel
#   make bundle    libckpt.so and zckpt, which need the C library alone
# Both take the other libraries from their archives (lib*.a).  A second make leaves out MPI and
# CUDA, serve and mount (libmicrohttpd loads TLS libraries, fusermount3 is a program of the system),
# and what has no archive here.

# $(call archive_of,NAME): libNAME.a beside the libraries that pkg-config finds, or nothing.
ARCHIVE_DIRS = $(sort $(foreach p,$(LIB_PKGS) $(PACK_PKGS) yaml-0.1 libcrypto liburing libcjson openblas,\
	$(shell $(PKG_CONFIG) --variable=libdir $(p) 2>/dev/null)))
archive_of   = $(firstword $(wildcard $(ARCHIVE_DIRS:%=%/lib$(1).a)))
archives     = $(foreach n,$(1),$(or $(call archive_of,$(n)),$(error lib$(n).a is missing: run tools/deps.sh --static)))
# What libarchive was built with differs: where there is none, it needs none.
if_archive   = $(foreach n,$(1),$(call archive_of,$(n)))

# Knobs of the second make: what has no archive is left out, unless X=1 insists.
with         = $(1)=$(if $(filter 1,$(strip $($(1)))),1,$(if $(filter $(words $(2)),$(words $(call if_archive,$(2)))),$(strip $($(1))),0))
WITHOUT      = MPI=0 CUDA=0 HTTP=0 FUSE=0 JSON=$(if $(call archive_of,cjson),$(strip $(JSON)),bundled) $(call with,PACK,archive zstd)
PORTABLE     = $(AGAIN) $(WITHOUT)
# OpenBLAS has kernels for every processor, 30 MB of them: BLAS=1 asks for it.
PORTABLE    += BLAS=$(if $(filter 1,$(BLAS)),1,0)

# mk/small_archive.c keeps out what libarchive.a would want and nothing here uses.
SMALL      := $(if $(HAS_PACK),$(B)/mk/small_archive.o)
SMALL_BZ2  := $(if $(HAS_PACK),$(B)/mk/small_bzip2.o)
PACK_A      = $(if $(HAS_PACK),$(call archives,archive zstd) $(call if_archive,$(1) lzma z))
LIB_A       = $(call PACK_A,$(1)) $(call archives,xxhash deflate) -lm
ENGINE_A    = $(call archives,$(if $(HAS_YAML),yaml) $(if $(HAS_CRYPTO),crypto) $(if $(HAS_URING),uring) $(if $(HAS_BLAS),openblas))
JSON_A      = $(if $(JSON_OWN),$(B)/libcjson.a,$(call archives,cjson))
OBJS       += $(SMALL) $(SMALL_BZ2)

## static: build zckpt and ztrain as static executables, without MPI and CUDA, in build/static
static:
	+@$(PORTABLE) $(call with,YAML,yaml) $(call with,CRYPTO,crypto) $(call with,URING,uring) static-here
static-here: $(B)/static/zckpt $(B)/static/ztrain
	@rm -rf build/static && mkdir -p build/static && for p in zckpt ztrain; do strip -o build/static/$$p $(B)/static/$$p || exit; done
	@cp LICENSE third_party/LICENSES build/static
	@mk/print-needs.sh none build/static/zckpt build/static/ztrain
$(B)/static/zckpt: $(TOOL) $(B)/tool.list $(if $(JSON_OWN),$(B)/libcjson.a) $(B)/libckpt.a $(SMALL)
$(B)/static/ztrain: $(ZTRAIN) $(if $(JSON_OWN),$(B)/libcjson.a) $(B)/libztrain.a $(B)/libckpt.a $(SMALL)
$(B)/static/%:
	@mkdir -p $(@D) && printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -static-pie -Wl,--gc-sections -o $@ $(filter-out %.list,$^) \
	    $(JSON_A) $(if $(filter %/ztrain,$@),$(ENGINE_A)) $(call LIB_A,bz2)

## bundle: build libckpt.so and zckpt that need the C library alone, in build/bundle
bundle: | $(filter static,$(MAKECMDGOALS))
	+@$(PORTABLE) bundle-here
bundle-here: $(B)/bundle/libckpt.so $(B)/bundle/zckpt
	@rm -rf build/bundle && mkdir -p build/bundle && for p in libckpt.so zckpt; do strip -o build/bundle/$$p $(B)/bundle/$$p || exit; done
	@cp LICENSE third_party/LICENSES build/bundle
	@mk/print-needs.sh libc build/bundle/libckpt.so build/bundle/zckpt
$(B)/bundle/libckpt.so: $(LIB) $(B)/libckpt.list libckpt/libckpt.map $(SMALL) $(SMALL_BZ2) | need-version
	@mkdir -p $(@D) && printf '  %-5s %s\n' LD $@
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=libckpt/libckpt.map -Wl,-z,defs -Wl,--gc-sections \
	    $(ALL_LDFLAGS) -o $@ $(LIB) $(SMALL) $(SMALL_BZ2) $(LIB_A)
$(B)/bundle/zckpt: $(TOOL) $(B)/tool.list $(if $(JSON_OWN),$(B)/libcjson.a) $(B)/libckpt.a $(SMALL) $(SMALL_BZ2)
	@mkdir -p $(@D) && printf '  %-5s %s\n' LD $@
	$(Q)$(CC) $(ALL_LDFLAGS) -Wl,--gc-sections -o $@ $(filter-out %.list,$^) $(JSON_A) $(LIB_A)

## static-check: build the static programs and run them in an empty root
static-check:
	@tests/static-check.sh
## bundle-check: build the bundle and use it
bundle-check:
	@tests/bundle-check.sh

.PHONY: static static-here bundle bundle-here static-check bundle-check
