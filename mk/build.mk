# build.mk -- read by the Makefile: flags, the object folder, and how a file is
# compiled, an archive made and a program linked.

# What the project adds to the knobs. The user's CFLAGS come last and win;
# contraction is off because results are compared bit for bit.
WARN := -Wall -Wextra -Wshadow -Wvla -Wwrite-strings -Wstrict-prototypes \
        -Wmissing-prototypes -Wpointer-arith -Wundef -Wformat=2
ALL_CPPFLAGS := -D_GNU_SOURCE= -D_FILE_OFFSET_BITS=64 $(CPPFLAGS) $(PROBE_CPPFLAGS)
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

# B, the folder of all that is built: one per set of flags, so that a
# sanitizer build never links plain objects.
comma := ,
FLAGS := $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(BLAS_CFLAGS) $(VIEW_CPPFLAGS)
B     := build/$(notdir $(firstword $(CC)))$(if $(strip $(SAN)),-$(subst $(comma),-,$(strip $(SAN))))-$(shell printf '%s' '$(FLAGS)' | cksum | cut -d' ' -f1)
Q     := $(if $(filter 1,$(V)),,@)

# The objects of sources; what a folder sees by -I is in INC.
objects = $(patsubst %.c,$(B)/%.o,$(1))
$(B)/%.o: %.c | need-libs
	@mkdir -p $(@D) && printf '  %-5s %s\n' CC $<
	$(Q)$(CC) $(ALL_CPPFLAGS) $(INC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
$(B)/%.mpi.o: %.c | need-libs
	@mkdir -p $(@D) && printf '  %-5s %s\n' CC '$< (MPI)'
	$(Q)$(MPI_CC) $(ALL_CPPFLAGS) $(INC) $(ALL_CFLAGS) -DZCKPT_MPI=1 $(MPI_CFLAGS) -MMD -MP -c -o $@ $<

$(B)/%.list: FORCE
	@mkdir -p $(@D) && printf '%s\n' '$(NAMES)' | cmp -s - $@ || printf '%s\n' '$(NAMES)' > $@
FORCE:

# $(call archive,NAME.a,OBJECTS): its NAME.list is rewritten when a source
# comes or goes, so that nothing keeps the object of a file that was removed.
define archive
$(1:.a=.list): NAMES = $(2)
$(1): $(2) $(1:.a=.list)
	@printf '  %-5s %s\n' AR $$@
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $(2)
endef

# $(call program,NAME,OBJECTS AND ARCHIVES,LIBRARIES[,LINKER]): NAME may be
# 'NAMES: %' with '%.o ...', for many programs of one kind.  A library that is built here is made first.
define program
$(1): $(2) $(filter $(B)/%,$(3))
	@printf '  %-5s %s\n' LD $$@
	$$(Q)$(or $(4),$$(CC)) $$(ALL_LDFLAGS) -o $$@ $$(filter-out %.list,$$^) $(3)
endef

# $(call page,FOLDER,HEADER): the *.css and *.js of FOLDER as strings in C, by tools/embed.awk, which
# HEADER declares; $(call page_parts,FOLDER) is their object.
page_parts = $(B)/$(1)/parts.o
define page
$(B)/$(1)/parts.list: NAMES = $(sort $(wildcard $(1)/*.css $(1)/*.js))
$(B)/$(1)/parts.c: $(sort $(wildcard $(1)/*.css $(1)/*.js)) $(B)/$(1)/parts.list tools/embed.awk
	@mkdir -p $$(@D) && printf '  %-5s %s\n' GEN $$@
	$$(Q)LC_ALL=C awk -v header=$(2) -f tools/embed.awk $(sort $(wildcard $(1)/*.css $(1)/*.js)) > $$@
$(B)/$(1)/parts.o: $(B)/$(1)/parts.c $(2) | need-libs
	$$(Q)$$(CC) $$(ALL_CPPFLAGS) -I. $$(ALL_CFLAGS) -c -o $$@ $$<
endef

.PHONY: FORCE
.DELETE_ON_ERROR:
.SECONDARY:
