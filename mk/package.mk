# package.mk -- read by the Makefile: what is published: the source archive, Debian packages.
# The archive has what is committed, so both need git and no build.
NAME_V := zckpt-$(VERSION)
DIST   := build/$(NAME_V).tar.gz

## dist: write the source archive of what is committed, build/zckpt-VERSION.tar.gz, and SHA256SUMS
dist: need-version
	@mkdir -p build
	@git rev-parse -q --verify HEAD > /dev/null || { echo 'make dist archives what is committed: this is no git repository' >&2; exit 1; }
	@git diff --quiet HEAD -- || echo 'make dist: what is not committed is left out' >&2
	$(Q)git -c tar.umask=0022 archive --prefix=$(NAME_V)/ -o $(DIST:.gz=) HEAD && gzip -9nf $(DIST:.gz=)
	@cd build && sha256sum $(NAME_V).tar.gz > SHA256SUMS && cat SHA256SUMS

.PHONY: dist
