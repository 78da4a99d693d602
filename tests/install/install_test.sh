#!/usr/bin/env bash
# Installs a build into an empty prefix, and builds and runs the examples against what was installed, with
# find_package and with pkg-config. Then looks at what the attention library brings along.
#
#   install_test.sh BUILD_DIR SOURCE_DIR CXX BUILD_TYPE
set -euo pipefail
build=$1
source=$2
cxx=$3
build_type=$4

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# The generator that made the build: another one's program may not be installed.
CMAKE_GENERATOR=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
export CMAKE_GENERATOR

# Runs a command quietly; prints what it said where it fails.
quiet() {
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$*"; }
}

DESTDIR='' quiet cmake --install "$build" --prefix "$prefix"
# Moved before it is used: nothing in it may name where it was installed first.
mv "$prefix" "$work/moved"
prefix=$work/moved

libdir=$(dirname "$(find "$prefix" -name libmla-attention.a)")
for file in "$libdir/libmla.a" "$libdir/pkgconfig/mla.pc" "$libdir/pkgconfig/mla-attention.pc" \
  "$libdir/cmake/mla/mla-config.cmake" "$libdir/cmake/mla/mla-config-version.cmake" "$prefix/bin/mla"; do
  [[ -e $file ]] || fail "not installed: $file"
done
for header in "$source"/include/mla/*.h; do
  cmp "$header" "$prefix/include/mla/$(basename "$header")" || fail "header $(basename "$header")"
done
# No path of the source or build tree in what is installed, but for debugging's and checks' file names in binaries.
if grep -rIl -e "$source" -e "$build" "$prefix"; then fail "installed files name the source or build tree"; fi

# The examples by find_package.
for example in attention_only run_model; do
  quiet cmake -S "$source/examples/$example" -B "$work/$example" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" -DCMAKE_BUILD_TYPE="$build_type"
  quiet cmake --build "$work/$example"
done
# And by pkg-config.
export PKG_CONFIG_PATH=$libdir/pkgconfig
mkdir "$work/pc"
for pair in attention_only:mla-attention run_model:mla; do
  example=${pair%:*}
  read -ra options <<<"$(pkg-config --static --cflags --libs "${pair#*:}")"
  quiet "$cxx" -std=c++20 -O1 -Wall -Wextra -Werror "$source/examples/$example/main.cc" "${options[@]}" \
    -o "$work/pc/$example"
done

for dir in attention_only pc; do
  "$work/$dir/attention_only" | tee "$work/attention.txt"
  grep -q '^mha against absorbed' "$work/attention.txt" || fail "attention_only says nothing"
done
model=$source/models/demo
for dir in run_model pc; do
  "$work/$dir/run_model" "$model" "In the beginning God created" >"$work/text.$dir"
  head -c 300 "$work/text.$dir"
  [[ $(wc -c <"$work/text.$dir") -gt 60 ]] || fail "run_model printed no continuation"
done
cmp "$work/text.run_model" "$work/text.pc" || fail "the two builds of run_model differ"
if "$work/pc/run_model" "$work/nowhere" x 2>"$work/error"; then fail "a missing model is no error"; fi
[[ $(wc -l <"$work/error") -eq 1 ]] || fail "a missing model should give one line"
"$prefix/bin/mla" --version >/dev/null || fail "the installed program does not run"

# A component that does not exist is refused; attention alone asks for no PCRE2.
printf 'cmake_minimum_required(VERSION 3.25)\nproject(p CXX)\nfind_package(mla REQUIRED COMPONENTS %s)\n%s' \
  "nonsense" "" >"$work/CMakeLists.txt"
if cmake -S "$work" -B "$work/p1" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null 2>&1; then fail "component nonsense was found"; fi
printf 'cmake_minimum_required(VERSION 3.25)\nproject(p CXX)\nfind_package(mla REQUIRED COMPONENTS %s)\n%s' "attention" \
  'if(TARGET mla::mla OR TARGET PkgConfig::PCRE2 OR NOT TARGET mla::attention)
  message(FATAL_ERROR "wrong targets")
endif()' >"$work/CMakeLists.txt"
quiet cmake -S "$work" -B "$work/p2" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx"

# The attention library brings along no JSON, regular-expression, HTTP or logging library.
# none PATTERN FILE WHAT: fails where a line matches. some: where none does. (Files, not pipes: a pipe that is closed early
# looks like a failure of what wrote to it.)
none() { if grep -m 5 -iE "$1" "$2"; then fail "$3"; fi; }
some() { grep -qiE "$1" "$2" || fail "$3"; }
unwanted='pcre2|nlohmann|spdlog|curl|ssl|http|basic_regex'
for binary in "$work/attention_only/attention_only" "$work/pc/attention_only"; do
  readelf -d "$binary" >"$work/dynamic"
  none "NEEDED.*($unwanted)" "$work/dynamic" "attention_only needs it"
done
nm -C "$libdir/libmla-attention.a" >"$work/attention.symbols" 2>/dev/null
nm -C "$libdir/libmla.a" >"$work/all.symbols" 2>/dev/null
some 'T mla::MlaAttention::Run' "$work/attention.symbols" "no attention in libmla-attention.a"
none "$unwanted" "$work/attention.symbols" "libmla-attention.a names it"
# These checks can fail: the whole library does hold such names.
some 'pcre2_' "$work/all.symbols" "libmla.a should name PCRE2"
some 'nlohmann' "$work/all.symbols" "libmla.a should name JSON"
readelf -d "$work/pc/run_model" >"$work/dynamic"
some 'NEEDED.*pcre2' "$work/dynamic" "run_model should need PCRE2"
# No object is in both archives.
for archive in attention all; do
  grep -E ' [TD] mla::' "$work/$archive.symbols" | sed 's/^[0-9a-f]* . //' | sort -u >"$work/$archive.defined"
done
comm -12 "$work/attention.defined" "$work/all.defined" >"$work/both"
none . "$work/both" "defined in both archives"
echo "installed, built and ran"
