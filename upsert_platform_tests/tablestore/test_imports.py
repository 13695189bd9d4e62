"""What the driver loads stays light: the SDK, Spark and Arrow come when they are used."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("tablestore", "pyspark", "pyarrow", "dagster", "urllib3", "numpy")


def test_driver_side_modules_load_without_sdk_spark_and_arrow() -> None:
    code = (
        "import sys, upsert_platform.tablestore.destination, upsert_platform.tablestore.connect.options,"
        " upsert_platform.tablestore.connect.timeseries_options;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
