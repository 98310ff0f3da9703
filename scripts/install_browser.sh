#!/usr/bin/env bash
# A Chromium that the viewer's tests can start, in the virtual environment that is active: the
# machine's own, else the one that Playwright fetches, else Debian's. Fails, and says why, if there
# is none to be had.
set -uo pipefail
cd "$(dirname "$0")/.."

works() {
    PYTHONPATH=tests/browser python - <<'PY'
from conftest import chromium
from playwright.sync_api import sync_playwright

with sync_playwright() as playwright:
    chromium(playwright).close()
PY
}

said=$(works 2>&1) && exit 0
timeout 60 python -m playwright install --with-deps chromium > /dev/null 2>&1 && works && exit 0
timeout 60 python -m playwright install chromium > /dev/null 2>&1 && works && exit 0
timeout 90 apt-get install --quiet --yes --no-install-recommends chromium > /dev/null 2>&1 && works && exit 0
printf 'no Chromium: none on this machine, none from Playwright, none from apt\n%s\n' "$said" >&2
exit 1
