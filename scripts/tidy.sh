#!/usr/bin/env bash
# clang-tidy over the sources that changed: against REVISION; with none given, against where this branch left
# origin/main, or what is not committed where there is no such branch. Nothing changed, nothing done.
#
#   scripts/tidy.sh [REVISION]
#   scripts/tidy.sh --all        every source (slow)
#
# Configures a build of its own in build/tidy, in which every file is compiled by itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
database=build/tidy

sources() {  # every tracked source, one a line, the project's own before tests
  git ls-files -- 'src/*.cc'
  git ls-files -- 'tests/*.cc' 'examples/*.cc' 'bench/*.cc'
}

# A header is checked through the source of its name, or else the first that includes it: a report on a header is the same
# from any of them, and some headers are included by a hundred.
sources_of_header() {
  local header=$1
  local name=${header#include/}
  name=${name#src/}
  name=${name#tests/}
  local own=${header%.*}.cc
  if [[ -f $own ]]; then
    echo "$own"
  else
    sources | xargs -d '\n' grep -lF "\"$name\"" | head -n 1 || true
  fi
}

changed() {
  local base=${1:-}
  if [[ -z $base ]]; then
    base=$(git merge-base HEAD origin/main 2>/dev/null || true)
    base=${base:-HEAD}
  fi
  git diff --name-only --diff-filter=d "$base" -- | while read -r file; do
    case "$file" in
      *.cc) echo "$file" ;;
      *.h | *.inl) sources_of_header "$file" ;;
    esac
  done | sort -u
}

if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  echo "clang-tidy: no git checkout, so nothing is known to have changed"
  exit 0
fi
if [[ ${1:-} == --all ]]; then
  files=$(sources)
elif [[ -n ${1:-} ]] && ! git rev-parse -q --verify "$1^{commit}" >/dev/null; then
  echo "clang-tidy: no such revision: $1" >&2
  exit 2
else
  files=$(changed "${1:-}")
fi
[[ -z $files ]] && { echo "clang-tidy: nothing changed"; exit 0; }

tool=clang-tidy-14
command -v "$tool" >/dev/null || tool=clang-tidy
command -v "$tool" >/dev/null || { echo "clang-tidy is not installed: scripts/install_deps.sh --checks" >&2; exit 1; }
cmake --preset release -B "$database" -DMLA_UNITY=OFF >/dev/null
cmake --build "$database" --target mla_build_info >/dev/null

# Sources that the build leaves out have no flags to be read with.
known=$(while read -r file; do
  if grep -qF "/$file\"" "$database/compile_commands.json"; then echo "$file"; fi
done <<<"$files")
[[ -z $known ]] && { echo "clang-tidy: nothing of the release build changed"; exit 0; }
echo "clang-tidy: $(wc -l <<<"$known") files"
xargs -r -d '\n' -n 1 -P "$(nproc)" "$tool" --quiet -p "$database" <<<"$known"
