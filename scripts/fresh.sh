#!/usr/bin/env bash
# Run a command as on a machine where nobody has worked yet. usage: scripts/fresh.sh COMMAND [ARGUMENT ...]
# /tmp, /var/tmp, /dev/shm, HOME and the cache folder are empty, and what is written there is deleted afterwards.
# Only this checkout, ../shared, the tools on PATH, and what package managers download or need to download
# (the caches of pip, npm and the tests' agents, pip's and npm's settings) are seen from outside.
set -euo pipefail
if [ $# -eq 0 ]; then
  echo "usage: scripts/fresh.sh COMMAND [ARGUMENT ...]" >&2
  exit 2
fi
top=$(cd "$(dirname "$0")/.." && pwd)
if ! command -v bwrap >/dev/null; then
  echo "scripts/fresh.sh needs bubblewrap" >&2
  "$top/scripts/debian.sh" bubblewrap
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}
export PIP_CACHE_DIR=${PIP_CACHE_DIR:-$cache/pip}
export npm_config_cache=${npm_config_cache:-$HOME/.npm}
export ASSAY_TEST_CACHE=${ASSAY_TEST_CACHE:-$cache/assay-tests}
mkdir -p "$PIP_CACHE_DIR" "$npm_config_cache" "$ASSAY_TEST_CACHE"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
words=(--dev-bind / /)
# Root stays root, with all that root may do: tests mount disks and start containers, Ray and bubblewrap.
[ "$(id -u)" != 0 ] || words+=(--cap-add ALL)
# Ray and podman keep memory here that outlives a killed process. HOME may be below it, so it is emptied first.
words+=(--perms 1777 --tmpfs /dev/shm)
n=0
for place in /tmp /var/tmp "$HOME" "$cache"; do
  n=$((n + 1))
  mkdir "$scratch/$n"
  words+=(--bind "$scratch/$n" "$place")
done
chmod 1777 "$scratch/1" "$scratch/2"
keep() { # what is below one of the emptied folders and has to be seen all the same
  case $2 in
    /tmp/* | /var/tmp/* | /dev/shm/* | "$HOME"/* | "$cache"/*) words+=("$1" "$2" "$2") ;;
  esac
}
IFS=: read -ra folders <<<"$PATH"
for path in "${folders[@]}" "$HOME/.pyenv" "$HOME/.npmrc" "$HOME/.config/pip"; do
  keep --ro-bind-try "$path"
done
[ ! -x "$top/.venv/bin/python" ] ||
  keep --ro-bind-try "$("$top/.venv/bin/python" -c 'import sys; print(sys.base_prefix)')"
# The checkout by both of its names if it was reached through a link, and the repository of a worktree.
real=$(cd "$top" && pwd -P)
repository=$(git -C "$top" rev-parse --path-format=absolute --git-common-dir 2>/dev/null) || repository=$real
for path in "$PIP_CACHE_DIR" "$npm_config_cache" "$ASSAY_TEST_CACHE" "$repository" "$top" "$real"; do
  keep --bind "$path"
done
keep --ro-bind-try "$(dirname "$real")/shared"
unset TMPDIR XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_RUNTIME_DIR
bwrap "${words[@]}" --die-with-parent -- "$@"
