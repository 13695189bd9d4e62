"""A session whose context ends in order, as that of a warm session whose process was killed, is told by name."""

from __future__ import annotations

import json
import subprocess
import sys

_PROGRAM = """
import json
import shutil
from pyspark.sql import SparkSession
from upsert_platform.core.spark_gone import told_if_gone

def told_of(job):
    try:
        job()
    except Exception as error:
        return [type(error).__name__, told_if_gone(error)]

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
context = spark.sparkContext
told = {"alive": told_of(lambda: context._jvm.java.util.LinkedList().getFirst())}
context._jsc.sc().stop()
shutil.rmtree(context._temp_dir)
told["parallelize"] = told_of(lambda: context.parallelize([1, 2], 1).collect())
told["sql"] = told_of(lambda: spark.range(3).collect())
context._gateway.proc.kill()
context._gateway.proc.wait()
told["killed"] = told_of(lambda: spark.range(3).collect())
print(json.dumps(told))
"""


def test_whatever_fails_in_a_context_that_was_stopped_is_told() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("alive") == ["Py4JJavaError", None]
    assert [(case, (text or "")[:20]) for case, (_, text) in told.items()] == [
        (case, "Spark's JVM is gone:") for case in ("parallelize", "sql", "killed")
    ]
