#!/usr/bin/env bash
# Installs the Debian packages that some tests need: bubblewrap (sandbox), iverilog (verilog-v1) and
# chromium (viewer). Does nothing where they are there already; fails where apt cannot install them.
set -euo pipefail

for program in bwrap iverilog chromium; do
    command -v "$program" > /dev/null || missing=yes
done
[ -n "${missing:-}" ] || exit 0
export DEBIAN_FRONTEND=noninteractive
timeout 200 apt-get update --quiet=2
timeout 400 apt-get install --quiet=2 --yes --no-install-recommends bubblewrap iverilog chromium
