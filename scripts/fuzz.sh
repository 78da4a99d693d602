#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each over its seeds.
#
#   scripts/fuzz.sh [SECONDS] [TARGET...]    each target for SECONDS (600), as many at once as there are cores
#
# The seeds are fuzz/corpus/TARGET; what a run adds to them goes to build/fuzz/corpus/TARGET, which later runs start from
# too. Fails on a crash, a sanitizer's finding, a leak, an input that takes 10 s, or one that takes 1 GiB. What was run
# and how far it came is in build/fuzz/logs, the input that failed in build/fuzz/findings.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-600}
if ! [[ $seconds =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: scripts/fuzz.sh [SECONDS] [TARGET...]" >&2
  exit 2
fi
shift $(($# > 0 ? 1 : 0))
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  mapfile -t targets < <(basename -a -s _fuzz.cc fuzz/*_fuzz.cc)
fi

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
scripts/install_deps.sh --fuzz
cmake --preset fuzz "${launcher[@]}" >/dev/null
cmake --build --preset fuzz --parallel "$(nproc)" --target "${targets[@]/%/_fuzz}"
mkdir -p build/fuzz/logs build/fuzz/findings

run() {
  local target=$1
  local corpus=build/fuzz/corpus/$target
  local log=build/fuzz/logs/$target.log
  mkdir -p "$corpus"
  local status=0
  build/fuzz/fuzz/"${target}_fuzz" "$corpus" "fuzz/corpus/$target" -max_total_time="$seconds" -max_len=16384 -timeout=10 \
    -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$target-" >"$log" 2>&1 || status=$?
  local executions
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "$target: exit $status, ${executions:-no} executions, $(find "$corpus" "fuzz/corpus/$target" -type f | wc -l) inputs"
  return "$status"
}
export -f run
export seconds
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run {}' || {
  echo "A target failed: build/fuzz/logs, build/fuzz/findings" >&2
  exit 1
}
