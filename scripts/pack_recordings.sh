#!/usr/bin/env bash
# Write tests/recordings.tar.xz and tests/golden.tar.xz: the agents' recordings and the cases of the
# reference harness that the tests read, so that a clone on its own has them.
# usage: scripts/pack_recordings.sh [SHARED]     (../shared unless given)
# Equal files make an equal archive, so `git status` says whether anything changed.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
shared=$(cd "${1:-$top/../shared}" && pwd)
for name in recordings golden; do
  # _peer_defects records known faults of the reference harness: nothing replays it.
  tar --create --directory "$shared" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX --exclude=golden/_peer_defects --exclude=golden/replay.py "$name" |
    xz -9e >"$top/tests/$name.tar.xz"
done
