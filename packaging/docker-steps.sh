#!/bin/bash
# usage: packaging/docker-steps.sh [--root DIR]
#
# What `docker build -f packaging/Dockerfile .` does, without a Docker engine: makes a Debian by
# debootstrap (--root: takes one that exists and keeps it), copies what is committed to its /src, runs
# the RUN lines of the Dockerfile in it, and copies their result to a root that is empty, where
# zckpt starts.  As root.  Not covered: the base image's own differences from debootstrap's, and the
# ENTRYPOINT.  Status 77 where this system cannot.
set -eu
cd "$(dirname "$0")/.."
root=
case ${1-} in
'') ;;
--root) root=$2 ;;
*) sed -n '2s/^# //p' "$0" >&2; exit 2 ;;
esac
work=build/docker
rm -rf $work
mkdir -p $work/image
[ "$(id -u)" = 0 ] || { echo 'docker-steps: a Debian of its own takes root' >&2; exit 77; }
if [ -z "$root" ]; then
	command -v debootstrap > /dev/null || { echo 'docker-steps: no debootstrap here: tools/deps.sh --deb' >&2; exit 77; }
	root=$work/root
	trap 'rm -rf "$root"' EXIT
	suite=$(sed -n 's/^FROM debian:\([a-z]*\).* AS build$/\1/p' packaging/Dockerfile)
	debootstrap --variant=minbase "$suite" $root > $work/debootstrap.log 2>&1 ||
		{ tail -n 3 $work/debootstrap.log >&2; echo 'docker-steps: debootstrap fails' >&2; exit 77; }
fi
trap 'exit 130' INT TERM
cp /etc/resolv.conf "$root/etc/resolv.conf"
rm -rf "$root/src"
mkdir "$root/src"
git archive HEAD | tar -x -C "$root/src"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
sed -n 's/^RUN //p' packaging/Dockerfile | while IFS= read -r step; do
	echo "RUN $step"
	chroot "$root" sh -c "cd /src && $step" < /dev/null > $work/step.log 2>&1 || { tail -n 20 $work/step.log >&2; exit 1; }
done
cp -r "$root/src/build/static/." $work/image
mkdir $work/image/data
chroot $work/image /zckpt --version
chroot $work/image /ztrain --version
du -sb $work/image
echo 'docker-steps: the programs of the image run'
