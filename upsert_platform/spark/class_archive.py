"""The location of the archive of Spark's classes in the form that the JVM maps into memory (class data sharing, JEP
350).

Loading and checking some ten thousand classes is a good part of what the JVM of a run does, and the same every time.
`train_archive` writes the archive; without one, sessions open as they do, and later.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from upsert_platform.spark.jars import cache_directory, java

_FORM: Final = b"jars by name, without MLlib"
"""Which class path the archive is for; see `direct_launch.class_path`."""


def archive_options() -> str:
    """Options of the JVM that use the archive; empty where there is none."""
    archive = archive_file()
    return (
        f"-XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off" if archive.is_file() else ""
    )


@lru_cache(maxsize=1)
def archive_file() -> Path:
    """Named after all that the JVM compares: its own build, and the class path, which lies below PySpark's folder."""
    spark = spark_folder()
    release = java().resolve().parent.parent / "release"
    build = release.read_bytes() if release.is_file() else str(release).encode()
    jars = "\n".join(f"{item.name} {item.stat().st_size}" for item in sorted((spark / "jars").iterdir()))
    name = hashlib.sha256(b"\0".join((_FORM, build, str(spark).encode(), jars.encode()))).hexdigest()[:16]
    return cache_directory() / "class-archives" / f"spark-{name}.jsa"


def spark_folder() -> Path:
    """Return the installation folder of PySpark."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent
