#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/black-hole.svg: DETER's section 5.6 on Linux in virtual time.

    tools/black_hole.py SLOWPATH

Runs scenarios/replay/black-hole.toml, asks `slowpath queues` for its page, and takes the two
plots of the first finding: the queue that dropped, and the one that had filled.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SCENARIO = "scenarios/replay/black-hole.toml"
IMAGE = "docs/images/black-hole.svg"
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" width="900" height="590" viewBox="0 0 900 590" role="img" \
aria-label="Two queues of one switch: the one to b fills, the dynamic threshold falls below the one to a, which drops packets while it becomes shorter">
<style>.q{stroke:#1f5fa8}.t{stroke:#c33;stroke-dasharray:5 3}.d{stroke:#777}path{fill:none;stroke-width:1.3}\
text{font:11px sans-serif;fill:#444}.h{font-size:13px;fill:#222}</style>
<rect width="900" height="590" fill="#fff"/>
"""
PLOT = re.compile(r"<h3>(\S+) &rarr; (\S+)</h3><svg [^>]*>(.*?)</svg>", re.S)


def page(slowpath):
    with tempfile.TemporaryDirectory() as folder:
        run, html = f"{folder}/run", f"{folder}/queues.html"
        subprocess.run([slowpath, "lab", "virtual", SCENARIO, "--out", run, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        asked = [slowpath, "queues", run, "--topology", SCENARIO, "--html", html, "--json"]
        subprocess.run(asked, check=True, stdout=subprocess.DEVNULL)
        return Path(html).read_text()


def main():
    plots = PLOT.findall(page(sys.argv[1]))[:2]
    if len(plots) != 2:
        sys.exit("black_hole.py: the page shows no finding with two queues")
    parts = []
    for place, (_, neighbour, plot) in enumerate(plots):
        title = f"queue of the switch to {neighbour}: bytes (blue), dynamic threshold (red, dashed), drops so far (grey)"
        parts.append(f'<g transform="translate(0 {20 + 285 * place})"><text class="h" x="60" y="8">{title}</text>{plot}</g>\n')
    Path(IMAGE).write_text(HEAD + "".join(parts) + "</svg>\n")


if __name__ == "__main__":
    main()
