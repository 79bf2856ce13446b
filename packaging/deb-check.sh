#!/bin/bash
# usage: packaging/deb-check.sh [--suite NAME] [--mirror URL] [--root DIR]
#
# Checks the packages that `make deb` left in build/deb: lintian has nothing to say; they install in a
# Debian that has nothing but its base; and there the script of the autopkgtest runs, as
# autopkgtest itself would start it.  Makes the root by debootstrap (--root: takes one that exists
# and keeps it).  Status 77 where this takes more than this system has: root, debootstrap, a mirror.
set -eu
cd "$(dirname "$0")/.."
suite=bookworm mirror=http://deb.debian.org/debian root=
while [ $# -gt 0 ]; do
	case $1 in
	--suite) suite=$2; shift 2 ;;
	--mirror) mirror=$2; shift 2 ;;
	--root) root=$2; shift 2 ;;
	*) sed -n '2s/^# //p' "$0" >&2; exit 2 ;;
	esac
done
skip() {
	echo "deb-check: $*" >&2
	exit 77
}
ls build/deb/*.changes > /dev/null 2>&1 || { echo 'deb-check: build/deb has no packages: make deb' >&2; exit 1; }
(cd build/deb && sha256sum -c --quiet SHA256SUMS)
if command -v lintian > /dev/null; then
	# the one tag: a package that is not uploaded to Debian closes no bug there
	lintian --allow-root --fail-on error,warning \
		--suppress-tags initial-upload-closes-no-bugs build/deb/*.changes
	echo 'deb-check: lintian reports no error and no warning'
else
	echo 'deb-check: no lintian here' >&2
fi
[ "$(id -u)" = 0 ] || skip 'a bare Debian takes root'
if [ -z "$root" ]; then
	command -v debootstrap > /dev/null || skip 'no debootstrap here: tools/deps.sh --deb'
	root=build/deb/root
	rm -rf "$root"
	trap 'rm -rf "$root"' EXIT
	debootstrap --variant=minbase "$suite" "$root" "$mirror" > build/deb/debootstrap.log 2>&1 ||
		{ tail -n 3 build/deb/debootstrap.log >&2; skip 'debootstrap fails'; }
fi
trap 'exit 130' INT TERM
rm -rf "$root/packages"
mkdir "$root/packages"
cp build/deb/*.deb packaging/debian/tests/installed "$root/packages"
rm -f "$root"/packages/*-dbgsym_*.deb
cp /etc/resolv.conf "$root/etc/resolv.conf"
needs=$(sed -n 's/^Depends: //p' packaging/debian/tests/control | tr -d ' ' | tr ',' '\n' |
	grep -vx "$(sed -n 's/^Package: //p' packaging/debian/control)" | tr '\n' ' ')
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
{ chroot "$root" apt-get update && chroot "$root" sh -c "apt-get install -y --no-install-recommends /packages/*.deb $needs"; } \
	> build/deb/install.log 2>&1 || { tail -n 5 build/deb/install.log >&2; echo 'deb-check: the packages do not install' >&2; exit 1; }
chroot "$root" dpkg-query -W zckpt ztrain libckpt0 libckpt-dev
chroot "$root" sh -c 'cd / && /packages/installed' > build/deb/autopkgtest.log 2>&1 ||
	{ tail -n 20 build/deb/autopkgtest.log >&2; echo 'deb-check: the test of the installed packages fails' >&2; exit 1; }
tail -n 2 build/deb/autopkgtest.log
chroot "$root" apt-get purge -y zckpt ztrain libckpt0 libckpt-dev > /dev/null 2>&1
left=$(find "$root/usr" \( -name '*zckpt*' -o -name '*ztrain*' -o -name '*libckpt*' \))
[ -z "$left" ] || { echo "deb-check: purge leaves $left" >&2; exit 1; }
echo 'deb-check: installed in a bare Debian, tested, removed'
