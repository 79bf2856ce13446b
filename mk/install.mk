# install.mk -- read by the Makefile: install, uninstall, dist-check.
bindir := $(DESTDIR)$(PREFIX)/bin
incdir := $(DESTDIR)$(PREFIX)/include
libdir := $(DESTDIR)$(LIBDIR)
mandir := $(DESTDIR)$(PREFIX)/share/man
MAN    := $(sort $(wildcard docs/man/*.[1-9]))
# Completions: shells look for the name of the program.
bashdir := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zshdir  := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fishdir := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
# Pages, licence and examples, in folders as in the tree, so that links between them work.
docdir := $(DESTDIR)$(PREFIX)/share/doc/zckpt
DOCS   := LICENSE README.md CHANGELOG.md $(sort $(wildcard docs/*.md docs/*.txt docs/*/*.md examples/*.c examples/*.md python/*.md python/examples/*.py)) examples/Makefile
PUBLIC := $(sort $(wildcard libckpt/include/*.h))

## install: install programs, libraries, headers, man pages, completions, docs (honours DESTDIR, PREFIX)
install: all
	install -d $(bindir) $(incdir) $(libdir)/pkgconfig
	install -m 644 $(PUBLIC) $(incdir)
	install -m 644 $(B)/libckpt.a $(libdir)
	install -m 755 $(B)/$(SO) $(libdir)
	ln -sfn $(SO) $(libdir)/$(SONAME)
	ln -sfn $(SO) $(libdir)/libckpt.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@PKGS@|$(LIB_PKGS)|' \
	    -e 's| *@PACK_LIBS@|$(if $(PACK_LIBS), $(PACK_LIBS))|' \
	    libckpt/libckpt.pc.in > $(libdir)/pkgconfig/libckpt.pc
	install -m 755 $(B)/zckpt $(if $(MPI_CC),$(B)/zckpt-mpi) $(B)/ztrain $(bindir)
	$(foreach m,$(MAN),install -D -m 644 $(m) $(mandir)/man$(patsubst .%,%,$(suffix $(m)))/$(notdir $(m)) && ) :
	$(foreach d,$(DOCS),install -D -m 644 $(d) $(docdir)/$(d) && ) :
	install -d $(bashdir) $(zshdir) $(fishdir)
	install -m 644 tools/completions/zckpt.bash $(bashdir)/zckpt
	install -m 644 tools/completions/_zckpt $(zshdir)
	install -m 644 tools/completions/zckpt.fish $(fishdir)
	for p in zckpt-mpi ztrain; do ln -sfn zckpt $(bashdir)/$$p && ln -sfn zckpt.fish $(fishdir)/$$p.fish || exit; done
## uninstall: remove what install wrote
uninstall:
	rm -f $(addprefix $(incdir)/,$(notdir $(PUBLIC))) $(libdir)/libckpt.a $(libdir)/$(SO) \
	    $(libdir)/$(SONAME) $(libdir)/libckpt.so $(libdir)/pkgconfig/libckpt.pc $(bindir)/zckpt $(bindir)/zckpt-mpi $(bindir)/ztrain \
	    $(foreach m,$(MAN),$(mandir)/man$(patsubst .%,%,$(suffix $(m)))/$(notdir $(m)))
	rm -f $(foreach p,zckpt zckpt-mpi ztrain,$(bashdir)/$(p) $(fishdir)/$(p).fish) $(zshdir)/_zckpt
	rm -f $(DOCS:%=$(docdir)/%)
	test ! -d $(docdir) || find $(docdir) -depth -type d -empty -delete

## dist-check: check that a clean export builds, installs and links
dist-check:
	@tests/dist-check.sh

.PHONY: install uninstall dist-check
