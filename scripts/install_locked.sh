#!/usr/bin/env bash
# Installs locks/NAME.txt, every file checked against its hash: install_locked.sh NAME PYTHON. uv, when
# it is on PATH, takes two minutes for the engines on two cores, pip five or more.
set -euo pipefail
name=${1:?give the name of a lock file} python=${2:?give the Python of a virtual environment}
lock=$(cd "$(dirname "$0")/.." && pwd)/locks/$name.txt

if command -v uv > /dev/null; then
    UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}} \
        uv pip install --quiet --no-cache --compile-bytecode --python "$python" --no-deps --require-hashes --requirement "$lock" && exit
    echo "uv could not install $lock; trying pip" >&2
fi
"$python" -m pip install --quiet --no-deps --require-hashes --requirement "$lock"
