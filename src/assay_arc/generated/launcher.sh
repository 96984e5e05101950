#!/bin/sh
# Runs PROGRAM.py with a Python that has arc-agi, also in a shell that does not have your PATH:
# the one that `python game_driver.py --check` wrote into the file .python, else the first of
# python3 and python that has it.
here=${0%/*}
[ "$here" = "$0" ] && here=.
saved=
[ -r "$here/.python" ] && read -r saved < "$here/.python"
for python in "$saved" python3 python; do
  [ -n "$python" ] || continue
  if "$python" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("arc_agi") is None)' \
    2>/dev/null; then
    exec "$python" "$here/PROGRAM.py" "$@"
  fi
done
echo "PROGRAM: found no Python that has arc-agi; with one that has it, run once:" >&2
echo "  python $here/game_driver.py --check" >&2
exit 1
