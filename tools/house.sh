#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the structure of the workspace against its limits; see tools/house.py.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 tools/house.py "$@"
