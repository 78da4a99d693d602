#!/usr/bin/env bash
# clang-format over the tracked C++ files: in place, or with --check, naming what differs. Version 14 (Debian 12), since
# versions differ in what they write.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

how=(-i)
case "${1:-}" in
  "") ;;
  --check) how=(--dry-run -Werror) ;;
  *) echo "usage: scripts/format.sh [--check]" >&2; exit 2 ;;
esac

tool=clang-format-14
command -v "$tool" >/dev/null || tool=clang-format
if ! command -v "$tool" >/dev/null; then
  echo "clang-format is not installed: scripts/install_deps.sh --checks" >&2
  exit 1
fi
"$tool" --version | grep -q "version 14" || echo "note: $("$tool" --version), where 14 is what the tree is written with"

list() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -z -- '*.cc' '*.h' '*.inl'
  else
    find include src tests examples bench fuzz \( -name '*.cc' -o -name '*.h' -o -name '*.inl' \) -print0 2>/dev/null
  fi
}
# Files that are tracked but deleted in the working tree are left out.
format() {
  list | while IFS= read -r -d '' file; do if [[ -f $file ]]; then printf '%s\0' "$file"; fi; done |
    xargs -0 -r -n 16 -P "$(nproc)" "$tool" "${how[@]}"
}
format
# Its first pass may leave a comment that a second one would move.
if [[ ${how[0]} == -i ]]; then format; fi
