#!/bin/sh
# Make .venv with all extras and test tools. usage: setup.sh PYTHON
set -eu
python=$1
if [ -z "$python" ]; then
  echo "Assay needs Python 3.12 or newer and found none." >&2
  echo "Install one (apt install python3.12, pyenv install 3.12, uv python install 3.12) and run make again." >&2
  exit 1
fi
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c 'import sys; raise SystemExit(sys.version_info < (3, 12))' 2>/dev/null; then
  echo "making .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
fi
echo "installing Assay with all extras and test tools into .venv (once)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
.venv/bin/python -m compileall -q src >/dev/null 2>&1 || true
