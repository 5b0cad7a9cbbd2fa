#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An object store with the S3 protocol, and another program that reads it: s3s-fs from crates.io and PyArrow from PyPI, under
the user's cache folder. Never a dependency of the product: a test writes to the one and reads with the other.

  tools/s3/peer.py --install                 installs them, if they are not there (some minutes: s3s-fs is compiled)
  tools/s3/peer.py --which                   prints the server's path and that of the interpreter with PyArrow; status 1
                                             if one is missing
  tools/s3/peer.py count ENDPOINT FOLDER TABLE COLUMN
                                             counts the rows of a table's objects below BUCKET/FOLDER, and the distinct
                                             values of a column, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY

SLOWPATH_NO_INSTALL=1: installs nothing.
"""

import os
import subprocess
import sys
from pathlib import Path

SERVER = "0.13.0-alpha.3"
PYARROW = "26.0.1"


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "slowpath"


def venv():
    return cache() / f"pyarrow-{PYARROW}"


def server():
    return cache() / f"s3s-fs-{SERVER}" / "bin/s3s-fs"


def missing():
    """What is not installed."""
    found = {f"s3s-fs {SERVER}": server().exists(), f"pyarrow {PYARROW}": (venv() / "done").exists()}
    return [name for name, there in found.items() if not there]


def install():
    if not missing():
        return
    if os.environ.get("SLOWPATH_NO_INSTALL"):
        sys.exit(f"peer.py: {', '.join(missing())} is missing in {cache()}")
    cache().mkdir(parents=True, exist_ok=True)
    if not (venv() / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", venv()], check=True)
        pip = [venv() / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"pyarrow=={PYARROW}"], check=True)
        (venv() / "done").touch()
    if not server().exists():
        subprocess.run(["cargo", "install", "--quiet", "--locked", "--version", SERVER, "--features", "binary",
                        "--root", server().parent.parent, "s3s-fs"], check=True)


def count(endpoint, folder, table, column):
    import pyarrow.dataset
    import pyarrow.fs
    store = pyarrow.fs.S3FileSystem(
        access_key=os.environ["AWS_ACCESS_KEY_ID"], secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=endpoint, scheme="http", region="us-east-1")
    found = store.get_file_info(pyarrow.fs.FileSelector(folder, recursive=True, allow_not_found=True))
    paths = [file.path for file in found if file.base_name.startswith(f"{table}-")]
    if not paths:
        print(0, 0)
        return
    rows = pyarrow.dataset.dataset(paths, filesystem=store, format="parquet").to_table(columns=[column])
    print(rows.num_rows, len(set(rows[column].to_pylist())))


def main():
    arguments = sys.argv[1:]
    if arguments == ["--install"]:
        try:
            install()
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"peer.py: cannot install {', '.join(missing())}: {error}")
    elif arguments == ["--which"]:
        if missing():
            sys.exit(f"{', '.join(missing())} is not installed: tools/s3/peer.py --install")
        print(server())
        print(venv() / "bin/python")
    elif arguments[:1] == ["count"] and len(arguments) == 5:
        count(*arguments[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
