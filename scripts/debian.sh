#!/bin/sh
# Install packages of Debian, one caller at a time: apt refuses a second one. usage: scripts/debian.sh PACKAGE ...
set -eu
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "install them: apt-get install $*" >&2
  exit 1
fi
exec 9>/run/lock/assay-debian.lock
flock 9
if ! dpkg -s "$@" >/dev/null 2>&1; then
  apt-get -qq update
  apt-get -qq -o DPkg::Lock::Timeout=300 install -y "$@" >/dev/null
fi
