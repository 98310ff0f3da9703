#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
: "${PETTINGLLMS_MODELS:?set PETTINGLLMS_MODELS before you start this run}"
exec docker run \
    --rm \
    --init \
    --stop-signal=SIGINT \
    --name=team \
    --cpus=8 \
    --shm-size=16g \
    --env=PETTINGLLMS_MODELS=/models \
    --workdir=/work \
    --volume="$PWD:/work" \
    --volume="$PETTINGLLMS_MODELS:/models:ro" \
    registry.example/pettingllms:gpu \
    bash \
    /work/start.sh
