# SPDX-License-Identifier: Apache-2.0
"""Folders of Parquet files as tables by name."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

# Suffixes of columns that are times, and how many there are of each in a second.
TIMES = {"_ps": 10**12, "_ns": 10**9, "_us": 10**6, "_ms": 10**3}
PREFIX = "slowpath."


def open(path) -> Tables:
    """The tables of a folder that slowpath wrote, or of one Parquet file.

    Raises FileNotFoundError where there is no table.
    """
    return Tables(path)


class Tables:
    """Tables by name. Files are read when a table is asked for."""

    def __init__(self, path):
        self.path = Path(path)
        self._files: dict[str, list[Path]] = {}
        if self.path.is_file():
            self._files[self.path.stem] = [self.path]
        elif any(self.path.glob("date=*")):
            # An agent's log, or a server's tables: TABLE-SEGMENT.parquet by date and hour.
            for file in sorted(self.path.glob("date=*/**/*.parquet")):
                self._files.setdefault(file.name.split("-")[0], []).append(file)
        else:
            for file in sorted(self.path.glob("*.parquet")):
                self._files[file.stem] = [file]
        if not self._files:
            raise FileNotFoundError(f"no table of slowpath in {self.path}: no Parquet file is there")

    def __repr__(self):
        return f"slowpath.Tables({str(self.path)!r}: {', '.join(self.names)})"

    def __contains__(self, name):
        return name in self._files

    @property
    def names(self) -> list[str]:
        """The tables that there are."""
        return sorted(self._files)

    def files(self, name) -> list[Path]:
        """The files of a table."""
        if name not in self._files:
            raise KeyError(f"no table {name!r} in {self.path}; there are {', '.join(self.names)}")
        return self._files[name]

    def metadata(self, name=None) -> dict[str, str]:
        """What a table's file says of itself: schema_version, producer, scenario, seed, …"""
        file = self.files(name or self.names[0])[0]
        pairs = pyarrow.parquet.read_metadata(file).metadata or {}
        text = {key.decode(): value.decode(errors="replace") for key, value in pairs.items()}
        return {key[len(PREFIX):]: value for key, value in text.items() if key.startswith(PREFIX)}

    @property
    def scenario(self) -> str:
        """The scenario's text as it was run."""
        return self.metadata()["scenario"]

    @property
    def seed(self) -> int:
        """The scenario's seed."""
        return int(self.metadata()["seed"])

    @property
    def producer(self) -> str:
        """Which slowpath wrote it."""
        return self.metadata()["producer"]

    def arrow(self, name, columns=None, seconds=False) -> pyarrow.Table:
        """A table as Arrow's. `columns`: only these. `seconds`: times in seconds, under names that end in
        `_s` in place of `_ps`, `_ns`, `_us` and `_ms`."""
        files = self.files(name)
        # Files of other versions may lack a column: it is null there.
        schemas = [pyarrow.parquet.read_schema(file).remove_metadata() for file in files]
        dataset = pyarrow.dataset.dataset(
            [str(file) for file in files], schema=pyarrow.unify_schemas(schemas), format="parquet")
        table = dataset.to_table(columns=columns)
        return in_seconds(table) if seconds else table

    def pandas(self, name, columns=None, seconds=False):
        """A table as a pandas.DataFrame; arguments as of `arrow`."""
        return self.arrow(name, columns, seconds).to_pandas()

    def polars(self, name, columns=None, seconds=False):
        """A table as a polars.DataFrame; arguments as of `arrow`."""
        import polars

        return polars.from_arrow(self.arrow(name, columns, seconds))


def in_seconds(table: pyarrow.Table) -> pyarrow.Table:
    """Whole numbers of picoseconds to milliseconds become seconds."""
    for place, field in enumerate(table.schema):
        suffix = field.name[-3:]
        if suffix not in TIMES or not pyarrow.types.is_integer(field.type):
            continue
        numbers = pyarrow.compute.cast(table.column(place), pyarrow.float64(), safe=False)
        seconds = pyarrow.compute.divide(numbers, float(TIMES[suffix]))
        table = table.set_column(place, field.name[:-3] + "_s", seconds)
    return table
