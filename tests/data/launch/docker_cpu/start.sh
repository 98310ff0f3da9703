#!/usr/bin/env bash
set -eu
if [ -f /work/runs/team/config.toml ]; then
    exec pettingllms resume /work/runs/team
else
    exec pettingllms train /work/run.toml --out /work/runs/team
fi
