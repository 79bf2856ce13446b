#!/bin/sh
# usage: deps.sh [--check] [--interop] [--clang] [--mpi] [--blas] [--views] [--demo] [--static] [--deb]
#
# Installs what zckpt needs to build and to test: a C compiler, make, pkg-config,
# cJSON, xxHash, libdeflate, libarchive, libzstd, libyaml, libcrypto (OpenSSL),
# liburing (on Linux), cmocka, zstd, tar.  Does nothing if all are installed.
# Installs missing packages with the system's package manager, as root or with
# sudo without a password.  Otherwise prints the command to run, with exit
# status 1.
#
#   --check    only list what is missing (exit status 1 if anything is)
#   --interop  also python3 with venv, for `make interop`
#   --clang    also clang
#   --mpi      also Open MPI, for zckpt-mpi and its tests
#   --blas     also OpenBLAS, for a faster training engine
#   --views    also libmicrohttpd and libfuse3, for zckpt serve and mount
#   --demo     also gnuplot and Open MPI, for all of `make demo`
#   --static   also the archives (lib*.a) of libraries, for `make static` and `make bundle`
#   --deb      also debhelper, lintian, debootstrap, OpenBLAS and --views, for `make deb` and `make deb-check`
set -u
uring=$([ "$(uname -s)" = Linux ] && echo liburing)
check=0 interop=0 clang=0 mpi=0 blas=0 views=0 plot=0 static=0 deb=0
for arg in "$@"; do
	case $arg in
	--check) check=1 ;;
	--interop) interop=1 ;;
	--clang) clang=1 ;;
	--mpi) mpi=1 ;;
	--blas) blas=1 ;;
	--views) views=1 ;;
	--demo) plot=1 mpi=1 ;;
	--static) static=1 ;;
	--deb) deb=1 blas=1 views=1 ;;
	-h | --help) sed -n '2,20s/^# \{0,1\}//p' "$0"; exit 0 ;;
	*) echo "deps.sh: unknown option: $arg (see deps.sh -h)" >&2; exit 2 ;;
	esac
done

have() { command -v "$1" > /dev/null 2>&1; }

# The names of what is missing, as this script calls them.
missing() {
	set --
	have "${CC:-cc}" || have gcc || have clang || set -- "$@" cc
	for tool in make zstd tar; do
		have $tool || set -- "$@" $tool
	done
	if have pkg-config; then
		for lib in libcjson libxxhash libdeflate libarchive libzstd yaml-0.1 libcrypto $uring cmocka; do
			pkg-config --exists $lib 2> /dev/null || set -- "$@" $lib
		done
	else
		set -- "$@" pkg-config libcjson libxxhash libdeflate libarchive libzstd yaml-0.1 libcrypto $uring cmocka
	fi
	if [ $interop = 1 ]; then
		have python3 && python3 -c 'import venv, ensurepip' 2> /dev/null || set -- "$@" python3
	fi
	if [ $clang = 1 ]; then
		have clang || set -- "$@" clang
	fi
	if [ $blas = 1 ]; then
		pkg-config --exists openblas 2> /dev/null || set -- "$@" openblas
	fi
	if [ $views = 1 ]; then
		for lib in libmicrohttpd fuse3; do
			pkg-config --exists $lib 2> /dev/null || set -- "$@" $lib
		done
	fi
	if [ $plot = 1 ]; then
		have gnuplot || set -- "$@" gnuplot
	fi
	if [ $static = 1 ]; then
		for lib in libxxhash.a libdeflate.a libarchive.a libzstd.a libz.a liblzma.a libbz2.a libyaml.a libcrypto.a; do
			case $("${CC:-cc}" -print-file-name=$lib 2> /dev/null) in /*) ;; *) set -- "$@" $lib ;; esac
		done
	fi
	if [ $deb = 1 ]; then
		for tool in dpkg-buildpackage dh lintian debootstrap; do
			have $tool || set -- "$@" $tool
		done
	fi
	if [ $mpi = 1 ]; then
		{ have mpicc && have mpirun; } || set -- "$@" mpi
	fi
	echo "$@"
}

# package MANAGER NAME: what the manager calls it.
package() {
	case $1:$2 in
	apt-get:cc) echo gcc libc6-dev ;;
	apt-get:libcjson) echo libcjson-dev ;;
	apt-get:libxxhash) echo libxxhash-dev ;;
	apt-get:libdeflate) echo libdeflate-dev ;;
	apt-get:libarchive) echo libarchive-dev ;;
	apt-get:libzstd) echo libzstd-dev ;;
	apt-get:yaml-0.1) echo libyaml-dev ;;
	apt-get:liburing | apk:liburing) echo liburing-dev ;;
	dnf:liburing | zypper:liburing) echo liburing-devel ;;
	apt-get:libmicrohttpd) echo libmicrohttpd-dev ;;
	apt-get:fuse3) echo libfuse3-dev fuse3 ;;
	dnf:libmicrohttpd | zypper:libmicrohttpd) echo libmicrohttpd-devel ;;
	dnf:fuse3 | zypper:fuse3) echo fuse3 fuse3-devel ;;
	apk:libmicrohttpd) echo libmicrohttpd-dev ;;
	apk:fuse3) echo fuse3 fuse3-dev ;;
	apt-get:libcrypto) echo libssl-dev ;;
	dnf:libcrypto) echo openssl-devel ;;
	zypper:libcrypto) echo libopenssl-devel ;;
	apk:libcrypto) echo openssl-dev ;;
	pacman:libcrypto | brew:libcrypto) echo openssl ;;
	apt-get:cmocka) echo libcmocka-dev ;;
	apt-get:python3) echo python3 python3-venv ;;
	apt-get:openblas) echo libopenblas-dev ;;
	dnf:openblas | zypper:openblas) echo openblas-devel ;;
	apk:openblas) echo openblas-dev ;;
	apt-get:gnuplot) echo gnuplot-nox ;;
	apt-get:libxxhash.a | apt-get:libdeflate.a | apt-get:libarchive.a | apt-get:libzstd.a | apt-get:liblzma.a | apt-get:libbz2.a | \
		apt-get:libyaml.a) echo "${2%.a}-dev" ;;
	apt-get:libz.a) echo zlib1g-dev ;;
	apt-get:libcrypto.a) echo libssl-dev ;;
	apt-get:dpkg-buildpackage) echo dpkg-dev ;;
	apt-get:dh) echo debhelper ;;
	apt-get:mpi) echo libopenmpi-dev openmpi-bin ;;
	dnf:cc | zypper:cc | pacman:cc) echo gcc ;;
	dnf:libcjson) echo cjson-devel ;;
	dnf:libxxhash) echo xxhash-devel ;;
	dnf:libdeflate) echo libdeflate-devel ;;
	dnf:cmocka) echo libcmocka-devel ;;
	dnf:libarchive) echo libarchive-devel ;;
	dnf:libzstd) echo libzstd-devel ;;
	dnf:yaml-0.1 | zypper:yaml-0.1) echo libyaml-devel ;;
	pacman:yaml-0.1 | brew:yaml-0.1) echo libyaml ;;
	apk:yaml-0.1) echo yaml-dev ;;
	dnf:pkg-config) echo pkgconf-pkg-config ;;
	zypper:libcjson) echo cJSON-devel ;;
	zypper:libxxhash) echo xxhash-devel ;;
	zypper:libdeflate) echo libdeflate-devel ;;
	zypper:libarchive) echo libarchive-devel ;;
	zypper:libzstd) echo libzstd-devel ;;
	zypper:cmocka) echo libcmocka-devel ;;
	pacman:libcjson) echo cjson ;;
	pacman:libxxhash) echo xxhash ;;
	pacman:libdeflate) echo libdeflate ;;
	pacman:libarchive) echo libarchive ;;
	pacman:libzstd) echo zstd ;;
	pacman:pkg-config) echo pkgconf ;;
	pacman:python3) echo python ;;
	apk:cc) echo gcc musl-dev ;;
	apk:libcjson) echo cjson-dev ;;
	apk:libxxhash) echo xxhash-dev ;;
	apk:libdeflate) echo libdeflate-dev ;;
	apk:libarchive) echo libarchive-dev ;;
	apk:libzstd) echo zstd-dev ;;
	apk:cmocka) echo cmocka-dev ;;
	apk:pkg-config) echo pkgconf ;;
	brew:cc | brew:clang) echo llvm ;;
	brew:tar) echo gnu-tar ;;
	brew:libcjson) echo cjson ;;
	brew:libxxhash) echo xxhash ;;
	brew:libdeflate) echo libdeflate ;;
	brew:libarchive) echo libarchive ;;
	brew:libzstd) echo zstd ;;
	brew:pkg-config) echo pkgconf ;;
	dnf:mpi) echo openmpi-devel ;;
	zypper:mpi) echo openmpi4-devel ;;
	*:mpi) echo openmpi ;;
	*) echo "$2" ;;
	esac
}

need=$(missing)
[ -n "$need" ] || exit 0
if [ $check = 1 ]; then
	for name in $need; do echo "$name is missing"; done
	exit 1
fi

manager=
for m in apt-get dnf pacman zypper apk brew; do
	if have $m; then manager=$m; break; fi
done
if [ -z "$manager" ]; then
	echo "Missing: $need. Install them with this system's package manager." >&2
	exit 1
fi
case $manager:" $need " in
apt-get:*) ;;
*.a\ * | *' dh '* | *' dpkg-buildpackage '*)
	echo "Missing: $need. This script knows packages with archives (lib*.a) and for Debian packages on Debian and Ubuntu only." >&2
	exit 1
	;;
esac
packages=
for name in $need; do packages="$packages $(package $manager "$name")"; done
packages=$(echo $packages)

prepare=
case $manager in
apt-get) prepare='apt-get update' install="apt-get install -y --no-install-recommends $packages" ;;
dnf) install="dnf install -y $packages" ;;
pacman) install="pacman -Sy --noconfirm --needed $packages" ;;
zypper) install="zypper --non-interactive install $packages" ;;
apk) install="apk add $packages" ;;
brew) install="brew install $packages" ;;
esac

sudo=
if [ $manager != brew ] && [ "$(id -u)" != 0 ]; then
	sudo=sudo
	if ! have sudo || ! sudo -n true 2> /dev/null; then
		echo "Missing: $need. Run this command, then try again:" >&2
		echo "    ${prepare:+sudo $prepare && }sudo $install" >&2
		exit 1
	fi
	sudo='sudo -n'
fi
echo "Missing: $need. Running: $sudo $install"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
run() {
	$sudo "$@" < /dev/null > "$log" 2>&1
}
# A package index that cannot be refreshed may still be good enough.
if { [ -z "$prepare" ] || run $prepare || true; } && run $install; then
	left=$(missing)
	[ -n "$left" ] || exit 0
	echo "$manager installed $packages, but these are still missing: $left" >&2
	exit 1
fi
tail -n 20 "$log" >&2
echo "Command failed (see its last lines above): $sudo $install" >&2
exit 1
