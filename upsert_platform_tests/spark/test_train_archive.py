"""Archives of Spark's classes that nobody uses any more leave the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from upsert_platform.spark.class_archive import archive_file, spark_folder
from upsert_platform.spark.train_archive import remove_stale, write_archive


def archive_of(cache: Path, name: str, spark: Path | None) -> Path:
    """An archive in a cache, with the note of its PySpark unless that is None."""
    archive = cache / f"spark-{name}.jsa"
    archive.write_bytes(b"classes")
    archive.chmod(0o444)
    if spark is not None:
        archive.with_suffix(".path").write_text(str(spark), "utf-8")
    return archive


def test_archives_of_a_pyspark_that_is_gone_or_renewed_are_removed(tmp_path: Path) -> None:
    cache, here, there = tmp_path / "cache", tmp_path / "here", tmp_path / "there"
    for folder in (cache, here, there):
        folder.mkdir()
    own = archive_of(cache, "own", here)
    kept = archive_of(cache, "of-another-checkout", there)
    stale = [
        archive_of(cache, "of-other-jars", here),
        archive_of(cache, "gone", tmp_path / "gone"),
        archive_of(cache, "unknown", None),
    ]
    assert set(remove_stale(own, here)) == set(stale)
    assert set(cache.iterdir()) == {own, kept, own.with_suffix(".path"), kept.with_suffix(".path")}
    assert remove_stale(own, here) == []


def test_only_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    own = archive_of(tmp_path, "own", tmp_path)
    for name, age in (("writing-now", 60), ("writing-once", 7200)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spark.jsa").touch()
        then = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (then, then))
    assert remove_stale(own, tmp_path) == [tmp_path / "writing-once"]


def test_an_archive_that_is_there_is_noted_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_CACHE", str(tmp_path))
    archive_file.cache_clear()
    try:
        archive = archive_file()
        archive.parent.mkdir(parents=True)
        archive.touch()
        assert write_archive() == archive
        assert archive.with_suffix(".path").read_text("utf-8") == str(spark_folder())
    finally:
        archive_file.cache_clear()
