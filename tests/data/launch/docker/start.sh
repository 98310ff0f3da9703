#!/usr/bin/env bash
set -eu
if [ -f /work/runs/small/config.toml ]; then
    exec pettingllms resume /work/runs/small
else
    exec pettingllms train /work/run.toml --out /work/runs/small
fi
