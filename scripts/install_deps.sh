#!/usr/bin/env bash
# Installs with apt what the build needs and the machine lacks (Debian 12). Touches nothing where all is there.
#
#   scripts/install_deps.sh            to build the program
#   scripts/install_deps.sh --tests    and the tests
#   scripts/install_deps.sh --checks   and the checks of format and lint
#   scripts/install_deps.sh --bench    to build the benchmarks (-DMLA_BENCH=ON)
#   scripts/install_deps.sh --fuzz     to build the fuzz targets (preset fuzz)
set -euo pipefail

build=(
  g++                   # the compiler, 12 or later (C++20)
  cmake                 # the build, 3.25 or later (presets)
  ninja-build           # what the presets generate for
  pkg-config            # finds PCRE2
  libfmt-dev            # formatting of messages
  libspdlog-dev         # logging
  nlohmann-json3-dev    # JSON: configs, tokenizers, safetensors headers
  libcli11-dev          # command line flags
  libboost1.81-dev      # the server's sockets and HTTP parser (headers alone)
  libpcre2-dev          # the tokenizers' regular expressions (UTF, JIT)
)
tests=(
  libgtest-dev          # GoogleTest
  libgmock-dev          # its matchers
)
checks=(
  clang-format          # scripts/format.sh
  clang-tidy            # scripts/tidy.sh
)

bench=(
  libbenchmark-dev      # Google Benchmark
)
fuzz=(
  clang                 # libFuzzer comes with it
)

wanted=("${build[@]}")
for flag in "$@"; do
  case "$flag" in
    --tests) wanted+=("${tests[@]}") ;;
    --bench) wanted+=("${bench[@]}") ;;
    --fuzz) wanted+=("${fuzz[@]}") ;;
    --checks) wanted+=("${tests[@]}" "${checks[@]}") ;;
    *) echo "usage: scripts/install_deps.sh [--tests] [--checks] [--bench] [--fuzz]" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "No apt on this system. The build needs what these Debian packages hold; please install their like by hand:"
  echo "  ${wanted[*]}"
  echo "Going on: the configure step will name what is missing."
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null || true)
  grep -qx installed <<<"$status" || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing packages, and neither root nor sudo to install them. Please run as root:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing: ${missing[*]}"
"${as_root[@]}" apt-get -q update || echo "The package lists could not be refreshed; trying those that are here." >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}"
