# SPDX-License-Identifier: Apache-2.0
"""The tables of slowpath in pandas, polars or Arrow.

    import slowpath
    run = slowpath.open("results")
    run.pandas("flows")

Columns are described in slowpath's docs/reference. Nothing here writes.
"""

from .figures import jain, slowdowns, throughput, utilisation
from .tables import Tables, open

__all__ = ["Tables", "jain", "open", "slowdowns", "throughput", "utilisation"]
__version__ = "0.1.0"
