#!/usr/bin/env bash
# Makes a virtual environment with verifiers, whose dependencies conflict with ours. Environments find
# it through PETTINGLLMS_VERIFIERS=FOLDER. PACKAGES are tasksets, or this package to evaluate its
# environments there.
#
#   verifiers.sh [FOLDER] [PACKAGE]...    verifiers 0.4.0 and PACKAGES
#   verifiers.sh FOLDER --locked          what CI installs: verifiers by hash from locks/verifiers.txt, and this package
set -euo pipefail

folder=${1:-.venv-verifiers}
shift || true
python3 -m venv "$folder"
if [ "${1:-}" = --locked ]; then
    root=$(cd "$(dirname "$0")/.." && pwd)
    bash "$root/scripts/install_locked.sh" verifiers "$folder/bin/python"
    "$folder/bin/python" -m pip install --quiet --no-deps "$root"
else
    "$folder/bin/python" -m pip install --quiet "verifiers==0.4.0" "$@"
fi
echo "export PETTINGLLMS_VERIFIERS=$(cd "$folder" && pwd)"
