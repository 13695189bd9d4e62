"""Writes the archive of Spark's classes: ``python -m upsert_platform.spark.train_archive``, once a machine.

A session does in small what runs do; its JVM writes down the classes that it loaded when it ends.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.task_runner import SparkTaskRunner
from upsert_platform.spark.class_archive import archive_file, spark_folder
from upsert_platform.spark.direct_launch import write_launch_options
from upsert_platform.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS: Final = 300
_ABANDONED_SECONDS: Final = 3600
_SCRATCH: Final = "writing-"
_BESIDE: Final = (".path", ".options")
"""What lies beside an archive: the folder of its PySpark, and the options of its launcher."""


def write_archive() -> Path:
    """Writes the archive, if there is none for this Java and this PySpark.

    Raises:
        subprocess.SubprocessError: the session failed, or took longer than five minutes.
        UpsertPlatformError: Java or a jar is missing.
    """
    archive = archive_file()
    if archive.is_file():
        _note(archive).write_text(str(spark_folder()), "utf-8")
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    write_launch_options()
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=_SCRATCH) as folder:
        written = Path(folder) / archive.name
        # In a process of its own, whose JVM has opened nothing else before.
        subprocess.run(
            [sys.executable, "-P", "-m", "upsert_platform.spark.train_archive", str(written), folder],
            check=True, timeout=_SECONDS, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        _note(archive).write_text(str(spark_folder()), "utf-8")
        written.replace(archive)
    remove_stale(archive, spark_folder())
    return archive


def remove_stale(archive: Path, spark: Path) -> list[Path]:
    """Removes what lies beside an archive and nobody uses any more: archives of another Java or other jars for the same
    PySpark, of a PySpark that is gone, or of one that nobody noted, and what writers left behind that were killed.

    Other processes may read and write there: a JVM keeps the file that it opened, and starts without one that is gone.

    Args:
        spark: the folder of the archive's own PySpark.

    Returns:
        What was removed.
    """
    removed = []
    for other in archive.parent.glob("spark-*.jsa"):
        of = _noted(other)
        if other == archive or (of is not None and of != spark and of.is_dir()):
            continue
        other.unlink(missing_ok=True)
        for suffix in _BESIDE:
            other.with_suffix(suffix).unlink(missing_ok=True)
        removed.append(other)
    for scratch in archive.parent.glob(f"{_SCRATCH}*"):
        with suppress(FileNotFoundError):
            if time.time() - scratch.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(scratch, ignore_errors=True)
                removed.append(scratch)
    return removed


def _note(archive: Path) -> Path:
    return archive.with_suffix(_BESIDE[0])


def _noted(archive: Path) -> Path | None:
    try:
        return Path(_note(archive).read_text("utf-8"))
    except FileNotFoundError:
        return None


def exercise(spark: SparkSession, folder: str) -> None:
    """Does in small what runs do.

    Args:
        folder: for a table.
    """
    from pyspark.sql import functions as F

    table = str(Path(folder) / "table")
    made = spark.range(1000).selectExpr("id % 10 AS k", "id AS v", "'text' AS s", "TIMESTAMP_NTZ '2026-01-01' AS t")
    for _ in range(2):
        made.mapInArrow(lambda batches: batches, made.schema).write.mode("append").parquet(table)
    stored = spark.read.schema(made.schema).parquet(table).where("v > 10")
    last = stored.groupBy("k").agg(F.max_by(F.struct("s", "t"), F.struct("v")).alias("last")).persist()
    SparkTaskRunner(lambda: spark).call(int, what="train")
    last.select("k", "last.*").join(stored, "k", "full_outer").groupBy("k").count().collect()


def _train(archive: str, folder: str) -> None:
    from pyspark import SparkContext

    spark = open_session({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"})
    exercise(spark, folder)
    gateway = SparkContext._gateway  # noqa: SLF001 - the program waits for its JVM
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def main(arguments: list[str]) -> int:
    """Writes the archive, or trains for it when its place and a folder are given."""
    if arguments:
        _train(*arguments)
        return 0
    try:
        write_archive()
    except (subprocess.SubprocessError, UpsertPlatformError, OSError) as error:
        # Sessions open without it too.
        print(f"the archive of Spark's classes was not written: {error}", file=sys.stderr)  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
