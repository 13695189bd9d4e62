"""Writes the archive of Spark's classes (`class_archive`): ``python -m upsert_platform.train_archive``, once a machine.

A session does in small what runs do; its JVM writes down the classes that it loaded when it ends.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from upsert_platform.class_archive import archive_file
from upsert_platform.errors import UpsertPlatformError

_SECONDS: Final = 300


def write_archive() -> Path:
    """Writes the archive, if there is none for this Java and this PySpark.

    Raises:
        subprocess.SubprocessError: the session failed, or took longer than five minutes.
        UpsertPlatformError: Java or a jar is missing.
    """
    archive = archive_file()
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        written = Path(folder) / archive.name
        # In a process of its own, whose JVM has opened nothing else before.
        subprocess.run(
            [sys.executable, "-m", "upsert_platform.train_archive", str(written), folder],
            check=True, timeout=_SECONDS, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        written.replace(archive)
    return archive


def _train(archive: str, folder: str) -> None:
    from pyspark import SparkContext
    from pyspark.sql import functions as F  # noqa: N812

    from upsert_platform.spark import open_session

    spark = open_session({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"})
    table = str(Path(folder) / "table")
    made = spark.range(1000).selectExpr("id % 10 AS k", "id AS v", "'text' AS s", "TIMESTAMP_NTZ '2026-01-01' AS t")
    for _ in range(2):
        made.mapInArrow(lambda batches: batches, made.schema).write.format("delta").mode("append").save(table)
    stored = spark.read.format("delta").load(table).where("v > 10")
    last = stored.groupBy("k").agg(F.max_by(F.struct("s", "t"), F.struct("v")).alias("last")).persist()
    last.select("k", "last.*").join(stored, "k", "full_outer").groupBy("k").count().collect()
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
