# SPDX-License-Identifier: Apache-2.0
"""Runs the simulator and reads what it wrote: figures are those that its own summary prints.

SLOWPATH names the command; `make check-python` sets it.
"""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import slowpath

COMMAND = os.environ.get("SLOWPATH", "slowpath")
ROOT = Path(__file__).resolve().parents[2]
SCENARIO = """
seed = 5
duration = "20 ms"
[topology]
kind = "dumbbell"
left = 3
right = 2
[topology.links]
rate = "1 Gbit/s"
delay = "10 us"
[switch]
buffer = "30 packets"
[[workload]]
name = "short"
kind = "poisson"
rate = "5000 /s"
sizes = "20 kB"
[[workload]]
name = "long"
kind = "bulk"
from = ["left-0"]
to = ["right-0"]
[measure]
every = "1 ms"
flows = ["long"]
links = ["left -> right"]
"""


def simulated(folder, *arguments):
    """What `slowpath sim --json` answers."""
    file = Path(folder) / "scenario.toml"
    file.write_text(SCENARIO)
    command = [COMMAND, "sim", file, "--json", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.said = simulated(cls.folder.name, "--out", f"{cls.folder.name}/out")
        cls.run_ = slowpath.open(f"{cls.folder.name}/out")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_all_tables_are_there_and_say_what_they_are_of(self):
        names = ["counts", "events", "flow-series", "flows", "link-series", "links", "queries", "queues"]
        self.assertEqual(self.run_.names, names)
        self.assertEqual((self.run_.seed, self.run_.scenario), (5, SCENARIO))
        self.assertTrue(self.run_.producer.startswith("slowpath "))
        with self.assertRaisesRegex(KeyError, "there are counts, events"):
            self.run_.pandas("flow")

    def test_pandas_and_polars_agree(self):
        for name in self.run_.names:
            pandas, polars = self.run_.pandas(name), self.run_.polars(name)
            self.assertEqual(list(pandas.columns), polars.columns)
            self.assertEqual(len(pandas), polars.height)
        some = self.run_.polars("flows", columns=["start_ps", "bytes"], seconds=True)
        self.assertEqual(some.columns, ["start_s", "bytes"])

    def test_slowdowns_are_those_of_the_summary(self):
        flows = slowpath.slowdowns(self.run_)
        said = {w["name"]: w for w in self.said["workloads"]}["short"]["slowdown"]
        mine = flows[flows["workload"] == "short"]["slowdown"]
        self.assertEqual(set(flows["workload"]), {"short"})
        self.assertEqual((len(mine), int((~flows["done"]).sum())), (said["flows"], said["unfinished"]))
        for key, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            nearest = mine.quantile(share, interpolation="higher") if share * len(mine) % 1 else None
            if nearest is not None:
                self.assertAlmostEqual(nearest / said[key], 1, delta=0.05)
        self.assertAlmostEqual(mine.max(), said["max"], places=6)

    def test_series_follow_from_what_arrived(self):
        over_time = slowpath.throughput(self.run_)
        flows = self.run_.pandas("flows")
        long = flows[flows["workload"] == "long"].iloc[0]
        bits = (over_time["bits_per_second"] * 1e-3).sum()
        self.assertAlmostEqual(bits / (long["arrived_bytes"] * 8), 1, delta=0.06)
        links = slowpath.utilisation(self.run_)
        self.assertEqual(set(links["node"]), {"left"})
        self.assertTrue(((links["utilisation"] >= 0) & (links["utilisation"] <= 1.02)).all())

    def test_a_sweep_is_one_table(self):
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/out"
            simulated(folder, "--seeds", "3", "--vary", "tcp.algorithm=cubic,newreno", "--out", out, "--quiet")
            sweep = slowpath.open(out).pandas("sweep")
            of_all = sweep[sweep["up_to_bytes"].isna() & sweep["above_bytes"].isna()]
            self.assertEqual(len(of_all), 2 * 3 * 2)
            self.assertEqual(set(sweep["tcp.algorithm"]), {"cubic", "newreno"})


class Elsewhere(unittest.TestCase):
    def test_a_folder_without_tables_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(FileNotFoundError, folder):
                slowpath.open(folder)

    def test_logs_have_tables_by_date_and_hour(self):
        import pyarrow
        import pyarrow.parquet

        with tempfile.TemporaryDirectory() as folder:
            for hour, columns in (("09", {"a": [1]}), ("10", {"a": [2], "b": ["x"]})):
                place = Path(folder) / f"date=2026-11-21/hour={hour}/host=web"
                place.mkdir(parents=True)
                pyarrow.parquet.write_table(pyarrow.table(columns), place / f"problems-0{hour}.parquet")
            log = slowpath.open(folder)
            self.assertEqual(log.names, ["problems"])
            rows = log.arrow("problems").to_pylist()
            self.assertEqual(rows, [{"a": 1, "b": None}, {"a": 2, "b": "x"}])

    def test_jain(self):
        self.assertEqual(slowpath.jain([2, 2, 2]), 1)
        self.assertAlmostEqual(slowpath.jain([1, 0, 0, 0]), 0.25)
        with self.assertRaises(ValueError):
            slowpath.jain([])

    def test_versions_are_those_of_the_workspace(self):
        text = (ROOT / "Cargo.toml").read_text()
        self.assertIn(f'version = "{slowpath.__version__}"', text)
        self.assertIn(f'version = "{slowpath.__version__}"', (ROOT / "python/pyproject.toml").read_text())


if __name__ == "__main__":
    unittest.main()
