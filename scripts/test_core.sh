#!/bin/sh
# Run the tests of assay where assay_arc does not exist. usage: test_core.sh [PYTEST ARGUMENTS]
# Makes an environment that has everything of .venv, a copy of src/assay, and nothing else of src.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
site() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
.venv/bin/python -m venv --without-pip "$folder/venv"
mkdir "$folder/src"
cp -R src/assay "$folder/src/"
printf '%s\n%s\n' "$folder/src" "$(site .venv/bin/python)" >"$(site "$folder/venv/bin/python")/core.pth"
printf '#!/bin/sh\nexec "%s" -m assay "$@"\n' "$folder/venv/bin/python" >"$folder/venv/bin/assay"
chmod +x "$folder/venv/bin/assay"
if "$folder/venv/bin/python" -c 'import assay_arc' 2>/dev/null; then
  echo "assay_arc can still be imported" >&2
  exit 1
fi
"$folder/venv/bin/python" -m pytest --ignore tests/assay_arc "$@"
