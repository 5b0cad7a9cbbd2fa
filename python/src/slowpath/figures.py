# SPDX-License-Identifier: Apache-2.0
"""Figures of runs as papers have them, as pandas frames."""

from __future__ import annotations

PS = 1e12


def end_s(run) -> float:
    """When a run ended, seconds of its own time."""
    counts = run.pandas("counts")
    whole = counts[counts["workload"].isna() & (counts["what"] == "end_ps")]
    return float(whole["count"].iloc[0]) / PS


def slowdowns(run):
    """Flows with `slowdown`, their completion time over the ideal one, and `done`. A flow that was not done has what it had
    taken until the end, a lower bound; endless flows and datagrams are left out."""
    flows = run.pandas("flows", seconds=True)
    flows = flows[flows["ideal_s"].notna()].copy()
    flows["done"] = flows["completion_s"].notna()
    taken = flows["completion_s"].fillna(end_s(run) - flows["start_s"])
    flows["slowdown"] = taken / flows["ideal_s"]
    return flows


def throughput(run):
    """Chosen flows over time: `time_s`, `flow`, `bits_per_second` since the sample before, `cwnd_packets`."""
    series = run.pandas("flow-series", seconds=True).sort_values(["flow", "time_s"])
    by_flow = series.groupby("flow")
    took = by_flow["time_s"].diff()
    series["bits_per_second"] = by_flow["arrived_bytes"].diff() * 8 / took
    return series.dropna(subset=["bits_per_second"])[["time_s", "flow", "bits_per_second", "cwnd_packets"]]


def utilisation(run):
    """Chosen links over time: `time_s`, `node`, `neighbour`, `utilisation` since the sample before, 0 to 1."""
    ends = ["node", "neighbour"]
    series = run.pandas("link-series", seconds=True).sort_values([*ends, "time_s"])
    rates = run.pandas("links")[[*ends, "rate_bits_per_second"]]
    series = series.merge(rates, on=ends)
    by_link = series.groupby(ends)
    bits = by_link["bytes"].diff() * 8
    series["utilisation"] = bits / by_link["time_s"].diff() / series["rate_bits_per_second"]
    return series.dropna(subset=["utilisation"])[["time_s", *ends, "utilisation"]]


def jain(values) -> float:
    """Jain's fairness index: 1 where all are equal, 1/n where one has everything (Jain, Chiu, Hawe 1984)."""
    values = [float(value) for value in values]
    squares = sum(value * value for value in values)
    if not values or squares == 0:
        raise ValueError("jain: no value is above 0")
    return sum(values) ** 2 / (len(values) * squares)
