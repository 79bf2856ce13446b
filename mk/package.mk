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

# The version of the packages is ours, whatever the top entry of packaging/debian/changelog says.
# make check has run the tests: DEB_BUILD_OPTIONS=parallel=2 has the packages' build run unit/ and api/ again.
DEB     := build/deb
DEB_REV ?= 1
DEB_BUILD_OPTIONS ?= nocheck parallel=$(JOBS)
## deb: build Debian packages (zckpt, ztrain, libckpt0, libckpt-dev) from the source archive, in build/deb
deb: dist
	rm -rf $(DEB) && mkdir -p $(DEB)
	cp $(DIST) $(DEB)/zckpt_$(VERSION).orig.tar.gz
	tar -xz -C $(DEB) -f $(DIST)
	cp -r $(DEB)/$(NAME_V)/packaging/debian $(DEB)/$(NAME_V)/debian
	sed -i '1s/(.*)/($(VERSION)-$(DEB_REV))/' $(DEB)/$(NAME_V)/debian/changelog
	cd $(DEB)/$(NAME_V) && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL \
	    DEB_BUILD_OPTIONS='$(DEB_BUILD_OPTIONS)' dpkg-buildpackage -us -uc
	cd $(DEB) && sha256sum *.deb *.dsc *.tar.* > SHA256SUMS && cat SHA256SUMS
## deb-check: check the packages with lintian; install and test them in a bare Debian (as root)
deb-check:
	@packaging/deb-check.sh

## wheel: build the Python package, with the library and zckpt in it, in build/wheel
PYTHON ?= python3
wheel: bundle
	rm -rf build/wheel && mkdir -p build/wheel
	mkdir build/wheel/source && cp -r python/src python/setup.py python/pyproject.toml python/README.md build/wheel/source
	cd build/wheel && ZCKPT_TOP='$(CURDIR)' ZCKPT_BUNDLE='$(CURDIR)/build/bundle' \
	    $(PYTHON) -m pip wheel -q --disable-pip-version-check --no-deps -w . ./source
	cd build/wheel && rm -rf source && sha256sum *.whl > SHA256SUMS && cat SHA256SUMS

.PHONY: dist deb deb-check wheel
