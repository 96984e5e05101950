#!/bin/sh
# Print the path of a Python >= 3.12; look where people have them, and try each before believing it.
works() { "$1" -c 'import sys; raise SystemExit(sys.version_info < (3, 12))' >/dev/null 2>&1; }
for name in python3.13 python3.12 python3.14 python3 python; do
  if path=$(command -v "$name" 2>/dev/null) && works "$path"; then echo "$path"; exit 0; fi
done
root=${PYENV_ROOT:-$HOME/.pyenv}
for path in "$root"/versions/3.1[2-9]*/bin/python3 /opt/homebrew/bin/python3.1[2-9] /usr/local/bin/python3.1[2-9]; do
  if [ -x "$path" ] && works "$path"; then echo "$path"; exit 0; fi
done
if command -v uv >/dev/null 2>&1; then
  path=$(uv python find '>=3.12' 2>/dev/null) && works "$path" && { echo "$path"; exit 0; }
fi
exit 0
