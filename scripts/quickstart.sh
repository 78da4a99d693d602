#!/usr/bin/env bash
# From a fresh clone to text: installs what is missing, builds the program, and lets the bundled model continue a prompt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prompt="In the beginning God created"

scripts/install_deps.sh
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake --preset release -DMLA_TESTS=OFF "${launcher[@]}"
cmake --build --preset release --parallel "$(nproc)"

echo
echo "The bundled model, a small one trained on public-domain text, continues: \"$prompt\""
echo
build/release/mla run models/demo "$prompt" --max-tokens 48
