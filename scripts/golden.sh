#!/usr/bin/env bash
# Replay the recorded cases of the reference harness, when ../shared is there.
# usage: scripts/golden.sh [CASE ...]
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
golden="$top/../shared/golden"
if [ ! -d "$golden" ]; then
  echo "golden replay: skipped, ../shared is not here"
  exit 0
fi
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$golden"/. "$copy"
chmod -R u+w "$copy"
# git keeps no empty folders, and the replayer copies each case's in/
for manifest in "$copy"/*/manifest.json; do mkdir -p "$(dirname "$manifest")/in"; done
# This case records the reference's fault 20 (trials ignores the result event), which our trials must not have:
# its output is what capture gives. The same fault stands among the _peer_defects as trials-output-ignores-result.
if [ $# -eq 0 ]; then
  rm -r "$copy/trials-grader-outcome"
  echo "golden replay: without trials-grader-outcome, which records a fault we do not have"
fi
"$top/.venv/bin/python" "$golden/replay.py" --dir "$copy" "$top/.venv/bin/assay" "$@"
