#!/usr/bin/env bash
# Makes a virtual environment with OpenEnv and the core of pettingllms. OpenEnv's web stack (FastAPI,
# Gradio, MCP) then never decides the versions that training runs with. `pettingllms serve-env` and
# tests find it through PETTINGLLMS_OPENENV=FOLDER.
#
#   openenv.sh FOLDER             the newest versions that fit
#   openenv.sh FOLDER --locked    what CI installs: every file checked against its hash in locks/openenv.txt
set -euo pipefail

folder=${1:?give the folder of the virtual environment}
root=$(cd "$(dirname "$0")/.." && pwd)
python3 -m venv "$folder"
if [ "${2:-}" = --locked ]; then
    bash "$root/scripts/install_locked.sh" openenv "$folder/bin/python"
    "$folder/bin/python" -m pip install --quiet --no-deps "$root"
    exit
fi
"$folder/bin/python" -m pip install --quiet "openenv-core>=0.3,<0.4" "${root}[math,search,vision]"
