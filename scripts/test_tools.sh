#!/usr/bin/env bash
# What the tests use and PyPI does not have: Chromium for the page, promtool for the alert rules. Debian and Ubuntu, as root.
set -euo pipefail

missing=()
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
  [ -n "${CHROMIUM:-}" ] || missing+=(chromium fonts-dejavu-core fonts-nanum fonts-noto-color-emoji)
command -v promtool >/dev/null || missing+=(prometheus)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "not installed: ${missing[*]}; their tests are skipped, and fail where CI=true" >&2
  exit 0
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
# RUNLEVEL: the package's service is not wanted.
RUNLEVEL=1 apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
