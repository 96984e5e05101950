#!/usr/bin/env bash
# Replay the recorded cases of the reference harness, when ../shared is there.
# usage: scripts/golden.sh [CASE ...]
# A clone on its own replays the copy in tests/golden.tar.xz: tests/test_golden.py.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
replay="$top/../shared/golden/replay.py"
if [ ! -f "$replay" ]; then
  echo "golden replay: ../shared is not here; tests/test_golden.py replays the copy in tests/"
  exit 0
fi
"$top/.venv/bin/python" "$replay" "$top/.venv/bin/assay" "$@"
