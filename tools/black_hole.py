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
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" \
aria-label="Two queues of one switch: the one to b fills, the dynamic threshold falls below the one to a, which drops packets while it becomes shorter">
<style>:root{{{colours}}}
.line{{fill:none;stroke-width:1.5}}.grid{{stroke:#e6e9ed}}.axis{{stroke:#888;fill:none}}text{{font:12px sans-serif;fill:#444}}.h{{font-size:13px;fill:#222}}</style>
<rect width="{width}" height="{height}" fill="#fff"/>
"""
PLOT = re.compile(r'<h3>(\S+) \u2192 (\S+)</h3><div class="legend">(.*?)</div><svg viewBox="0 0 (\d+) (\d+)"[^>]*>(.*?)</svg>', re.S)
LEGEND = re.compile(r'border-color:([^"]+)"></i>([^<]+)<')
# Above each plot: its title, and what its lines are.
ABOVE = 46


def page(slowpath):
    with tempfile.TemporaryDirectory() as folder:
        run, html = f"{folder}/run", f"{folder}/queues.html"
        subprocess.run([slowpath, "lab", "virtual", SCENARIO, "--out", run, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        asked = [slowpath, "queues", run, "--topology", SCENARIO, "--html", html, "--json"]
        subprocess.run(asked, check=True, stdout=subprocess.DEVNULL)
        return Path(html).read_text()


def main():
    text = page(sys.argv[1])
    plots = PLOT.findall(text)[:2]
    if len(plots) != 2:
        sys.exit("black_hole.py: the page shows no finding with two queues")
    width = max(int(plot[3]) for plot in plots)
    parts, height = [], 0
    for _, neighbour, legend, _, own, plot in plots:
        names = "  ".join(f'<tspan style="fill:{colour}">\u2501 {name}</tspan>' for colour, name in LEGEND.findall(legend))
        head = f'<text class="h" x="14" y="18">queue of the switch to {neighbour}</text><text x="14" y="36" xml:space="preserve">{names}</text>'
        parts.append(f'<g transform="translate(0 {height})">{head}<g transform="translate(0 {ABOVE})">{plot}</g></g>\n')
        height += ABOVE + int(own) + 10
    # The first theme is the light one.
    colours = " ".join(re.findall(r"--c\d: #\w+;", text)[:8])
    Path(IMAGE).write_text(HEAD.format(width=width, height=height, colours=colours) + "".join(parts) + "</svg>\n")


if __name__ == "__main__":
    main()
