#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
: "${PETTINGLLMS_MODELS:?set PETTINGLLMS_MODELS before you start this run}"
: "${WANDB_API_KEY:?set WANDB_API_KEY before you start this run}"
exec docker run \
    --rm \
    --init \
    --stop-signal=SIGINT \
    --name=small \
    --cpus=32 \
    --shm-size=16g \
    --gpus=4 \
    --env=WANDB_API_KEY \
    --env=PETTINGLLMS_MODELS=/models \
    --workdir=/work \
    --volume="$PWD:/work" \
    --volume="$PETTINGLLMS_MODELS:/models:ro" \
    registry.example/pettingllms:gpu \
    bash \
    /work/start.sh
