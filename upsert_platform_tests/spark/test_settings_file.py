"""Settings of a session reach Spark's JVM as they are given, and no command line shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.spark.settings_file import settings_file

pytestmark = pytest.mark.whole_runs

SECRET = "s3cr3t-of-the-store"
OPENED = """
import os, sys, time, psutil
from upsert_platform.spark import session
from upsert_platform.spark.scratch import scratch_folder

seen = []
started = session.settings_file

def looked_at(settings, folder):
    from contextlib import contextmanager
    @contextmanager
    def inner():
        with started(settings, folder):
            seen.extend(oct(path.stat().st_mode & 0o777) for path in folder.glob("*.properties"))
            yield
    return inner()

session.settings_file = looked_at
spark = session.open_session({
    "spark.hadoop.fs.s3a.secret.key": sys.argv[1],
    "spark.of.mine": " a=b: c#d\\\\e\\nf \\u00e4\\u4e2d",
})
children = [psutil.Process(), *psutil.Process().children(recursive=True)]
lines = [part for child in children[1:] if child.status() != psutil.STATUS_ZOMBIE for part in child.cmdline()]
conf = spark.sparkContext.getConf()
print("shown", sum(sys.argv[1] in part for part in lines), len(lines) > 5)
print("read", conf.get("spark.hadoop.fs.s3a.secret.key") == sys.argv[1], ascii(conf.get("spark.of.mine")))
print("theirs", conf.get("spark.theirs", "none"), conf.get("spark.app.name"))
tracker = spark.sparkContext.statusTracker()
until = time.monotonic() + 60
while not (started_by := tracker.getJobIdsForGroup(session.WORKERS_GROUP)) and time.monotonic() < until:
    time.sleep(0.01)
print("workers", len(started_by), "others", len(tracker.getJobIdsForGroup(None)))
def parent(batches):
    import os, pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"pid": [os.getppid()]})
first = spark.sparkContext.parallelize([0], 1).mapPartitions(lambda _: [os.getppid()]).collect()
tasks = spark.range(1, numPartitions=1).mapInArrow(parent, "pid long").collect()
print("workers of one process", first == [row.pid for row in tasks])
def package(_):
    import pyspark, py4j
    return [(pyspark.__file__, py4j.__file__)]
import pyspark, py4j
found = spark.sparkContext.parallelize([0], 1).mapPartitions(package).collect()
print("as the driver's", found == [package(None)[0]])
print("modes", seen, "left", list(scratch_folder().glob("*.properties")))
spark.stop()
"""


def test_settings_reach_the_jvm_and_no_command_line_shows_them(tmp_path: Path) -> None:
    theirs = tmp_path / "their own.properties"
    theirs.write_text("spark.theirs  kept\nspark.app.name theirs\n")
    done = subprocess.run(
        [sys.executable, "-c", OPENED, SECRET],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"--properties-file '{theirs}' pyspark-shell"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "shown 0 True",
        f"read True {' a=b: c#d' + chr(92) + 'e' + chr(10) + 'f ' + chr(0xE4) + chr(0x4E2D)!a}",
        "theirs kept upsert-platform",
        "workers 1 others 0",
        "workers of one process True",
        "as the driver's True",
        "modes ['0o600'] left []",
    ], done.stderr


def test_the_file_is_gone_and_the_environment_as_before_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    with pytest.raises(RuntimeError), settings_file({"spark.a": "b"}, tmp_path):
        assert [path.read_text() for path in tmp_path.iterdir()] == ["spark.a=b\n"]
        assert os.environ["PYSPARK_SUBMIT_ARGS"].endswith(" pyspark-shell")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_a_properties_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file=/nowhere/spark.properties pyspark-shell")
    with (
        pytest.raises(EndpointError, match=r"'/nowhere/spark.properties', which PYSPARK_SUBMIT_ARGS names"),
        settings_file({}, tmp_path),
    ):
        pass
