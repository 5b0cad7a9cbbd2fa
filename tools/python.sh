#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python package: its wheel, its tests, its notebooks, in a virtual environment under the
# user's cache folder.
#
#   tools/python.sh wheel             builds the wheel into python/dist
#   tools/python.sh check SLOWPATH    builds it, installs it, runs tests and notebooks with that command
set -euo pipefail
what=${1:?wheel or check}
cd "$(dirname "$0")/../python"

venv=${XDG_CACHE_HOME:-${HOME-}/.cache}/slowpath/python-1
if [[ ! -e $venv/done ]]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check build==1.3.0 \
        pyarrow==21.0.0 pandas==2.3.2 polars==1.33.1 matplotlib==3.10.6 nbclient==0.10.2 ipykernel==6.30.1
    touch "$venv/done"
fi
rm -rf dist dist.log
"$venv/bin/python" -m build --wheel --outdir dist . >dist.log 2>&1 || { cat dist.log >&2; exit 1; }
[[ $what == check ]] || exit 0

SLOWPATH=$(realpath "${2:?the command}")
SLOWPATH_SCENARIOS=$(realpath ../scenarios)
export SLOWPATH SLOWPATH_SCENARIOS
"$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/*.whl
"$venv/bin/python" -m unittest discover --start-directory tests
for notebook in notebooks/*.ipynb; do
    "$venv/bin/python" -c '
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
print(f"{sys.argv[1]}: runs")' "$notebook"
done
