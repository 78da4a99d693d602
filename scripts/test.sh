#!/usr/bin/env bash
# Installs what is missing, builds the release preset and runs its tests.
#
#   scripts/test.sh          the above
#   scripts/test.sh --all    what CI runs: also address and undefined-behaviour sanitizers over all tests, the thread
#                            sanitizer over the threaded ones, the portable kernels alone over the kernel tests, the
#                            format check, and clang-tidy over what changed
#
# The last line is "N passed, N failed, N skipped", summed over the builds. A step that is no test (a build, the format)
# counts as one failed where it fails. Exit 1 where anything failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

all=false
case "${1:-}" in
  "") ;;
  --all) all=true ;;
  *) echo "usage: scripts/test.sh [--all]" >&2; exit 2 ;;
esac

passed=0
failed=0
skipped=0
failures=()

summary() {
  if [[ ${#failures[@]} -gt 0 ]]; then
    printf '\nFailed:\n'
    printf '  %s\n' "${failures[@]}"
  fi
  printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [[ $failed -eq 0 && $passed -gt 0 ]]
}
interrupted() {
  trap - INT TERM
  fail "interrupted"
  summary
  exit 130
}
trap interrupted INT TERM

fail() {
  failures+=("$1")
  failed=$((failed + 1))
}

# step NAME COMMAND...: runs it, says how long it took, and counts a failure.
step() {
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  local begin=$SECONDS
  local status=0
  "$@" || status=$?
  local outcome="done"
  if [[ $status -ne 0 ]]; then
    outcome="FAILED ($status)"
    fail "$name"
  fi
  printf '== %s: %s in %d s\n' "$name" "$outcome" $((SECONDS - begin))
  return "$status"
}

# count NAME JUNIT_FILE: adds a run's tests to the sums. CTest reports a test whose program is missing as skipped; only a
# skip that the test asked for counts as one here.
count() {
  local run=$1
  local file=$2
  if [[ ! -s $file ]]; then
    fail "$run: no test results"
    return
  fi
  local kind name
  while read -r kind name; do
    case "$kind" in
      passed) passed=$((passed + 1)) ;;
      skipped) skipped=$((skipped + 1)) ;;
      *) fail "$run: $name" ;;
    esac
  done < <(awk '
    function flush() { if (name != "") print (status == "run" ? "passed" : status == "skip" ? "skipped" : "failed"), name; name = "" }
    /^[ \t]*<testcase / {
      flush()
      match($0, / name="[^"]*"/); name = substr($0, RSTART + 7, RLENGTH - 8)
      match($0, / status="[^"]*"/); status = substr($0, RSTART + 9, RLENGTH - 10)
      if (status == "disabled") status = "skip"
    }
    /^[ \t]*<skipped message="SKIP_/ { if (status == "notrun") status = "skip" }
    END { flush() }' "$file")
}

jobs=$(nproc)
launcher=()
if command -v ccache >/dev/null; then
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi

# run_preset PRESET LABEL [PREFIX...]: builds a preset and runs its tests, those with LABEL where it is not empty; each
# command behind PREFIX.
run_preset() {
  local preset=$1
  local label=$2
  shift 2
  local results=$PWD/build/$preset/test-results.xml
  local target=all
  local filter=()
  if [[ -n $label ]]; then
    target=mla_tests_$label
    filter=(-L "$label")
  fi
  rm -f "$results"
  step "$preset: configure" cmake --preset "$preset" -DMLA_TESTS=ON "${launcher[@]}" || return
  step "$preset: build" "$@" cmake --build --preset "$preset" --parallel "$jobs" --target "$target" || return
  printf '\n== %s: test\n' "$preset"
  local begin=$SECONDS
  "$@" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --parallel "$jobs" "${filter[@]}" \
    --output-junit "$results" </dev/null
  local status=$?
  printf '== %s: tested in %d s\n' "$preset" $((SECONDS - begin))
  local failed_before=$failed
  count "$preset" "$results"
  if [[ $status -ne 0 && $failed -eq $failed_before ]]; then fail "$preset: ctest ended with $status"; fi
}

if $all; then needs=--checks; else needs=--tests; fi
step "packages" scripts/install_deps.sh "$needs" || { summary; exit 1; }

if $all; then step "format" scripts/format.sh --check; fi
run_preset release ""
if $all; then
  export UBSAN_OPTIONS=print_stacktrace=1
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  step "tidy" scripts/tidy.sh
  run_preset scalar-only kernels
  # GCC 12's thread sanitizer can't start where addresses are random in too many bits (newer kernels' default).
  fixed=()
  if setarch "$(uname -m)" -R true 2>/dev/null; then fixed=(setarch "$(uname -m)" -R); fi
  run_preset tsan threads "${fixed[@]}"
  run_preset asan-ubsan ""
fi

summary
