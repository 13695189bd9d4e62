"""Pinned jars: what the lock holds, and how the cache is filled from it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from upsert_platform.spark import jars


@pytest.fixture
def fake_java(tmp_path: Path):
    """Makes a `java` that runs the given shell text, in a directory usable as JAVA_HOME."""

    def make(script: str) -> Path:
        program = tmp_path / "jdk" / "bin" / "java"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return program.parents[1]

    return make


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a repository on disk that holds the jars of the broker; returns the repository."""
    source = tmp_path / "mirror"
    source.mkdir()
    for jar in jars.kafka_broker_jars():
        os.link(jar, source / jar.name)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="disk"/><resolvers><filesystem name="disk">'
        f'<artifact pattern="{source}/[artifact]-[revision](-[classifier]).[ext]"/></filesystem>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv("UPSERT_PLATFORM_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("UPSERT_PLATFORM_CACHE", str(tmp_path / "cache"))
    return source


@pytest.mark.parametrize("name", sorted(jars.pinned_sets()))
def test_every_pin_has_a_digest_and_a_file_name_of_its_own(name: str) -> None:
    artifacts = jars.pinned_sets()[name]
    assert all(re.fullmatch(r"[0-9a-f]{64}", item.sha256) for item in artifacts)
    assert len({item.file_name for item in artifacts}) == len(artifacts)


def test_broker_jars_are_on_disk() -> None:
    found = jars.kafka_broker_jars()
    assert len(found) == 46
    assert all(path.stat().st_size > 0 for path in found)


def test_unknown_version_names_the_pinned_ones() -> None:
    with pytest.raises(jars.JarError, match=r"'kafka-1\.0\.0'; pinned are .*kafka-4\.3\.1"):
        jars.kafka_broker_jars("1.0.0")


@pytest.mark.parametrize(("text", "major"), [("11.0.2", 11), ("1.8.0_392", 8), ("16", 16)])
def test_java_older_than_17_is_refused(fake_java, monkeypatch: pytest.MonkeyPatch, text: str, major: int) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(f"echo 'openjdk version \"{text}\"' >&2")))
    with pytest.raises(
        jars.JavaMissingError, match=rf"is Java {major}: install Java 17 or newer .*JAVA_HOME"
    ) as caught:
        jars.java()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["17.0.15", "21.0.1", "25", "26-ea"])
def test_java_17_and_newer_is_taken(fake_java, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    home = fake_java(f"echo 'openjdk version \"{text}\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert jars.java() == home / "bin" / "java"


@pytest.mark.parametrize(
    ("version", "taken"), [("17.0.15", True), ("21", True), ("1.8.0_392", False), ("11.0.2", False)]
)
def test_a_java_that_tells_its_version_in_a_file_is_not_started(
    fake_java, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, taken: bool
) -> None:
    home = fake_java(f"touch {tmp_path / 'started'}; exit 1")
    (home / "release").write_text(f'JAVA_RUNTIME_VERSION="99+1"\nJAVA_VERSION="{version}"\nLIBC="gnu"\n', "utf-8")
    monkeypatch.setenv("JAVA_HOME", str(home))
    if taken:
        assert jars.java() == home / "bin" / "java"
    else:
        with pytest.raises(jars.JavaMissingError, match="install Java 17"):
            jars.java()
    assert not (tmp_path / "started").exists()


def test_missing_java_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(jars.JavaMissingError, match="Java was not found: install Java 17"):
        jars.java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(jars.JavaMissingError, match="holds no bin/java"):
        jars.java()


def test_parallel_processes_fetch_once(
    mirror: Path, tmp_path: Path, fake_java, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = tmp_path / "runs"
    real = jars.java()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(f'[ "$1" = -jar ] && echo run >> {counter}\nexec {real} "$@"')))
    code = "from upsert_platform.spark import jars; print(*jars.kafka_broker_jars(), sep=chr(10))"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(set(printed)) == 1
    assert counter.read_text().split() == ["run"]
    assert [entry.name for entry in (tmp_path / "cache" / "jars").iterdir() if not entry.name.startswith(".")] == [
        Path(printed[0].splitlines()[0]).parent.name
    ]


@pytest.mark.soak
def test_deleted_jar_is_fetched_again(mirror: Path) -> None:
    first, *others = jars.kafka_broker_jars()
    first.unlink()
    assert jars.kafka_broker_jars() == [first, *others]
    assert first.is_file()


def test_other_bytes_are_not_installed(mirror: Path, tmp_path: Path) -> None:
    victim = next(mirror.glob("kafka-raft-*.jar"))
    victim.unlink()
    victim.write_bytes(b"something else")
    with pytest.raises(
        jars.JarError, match=r"org\.apache\.kafka:kafka-raft:4\.3\.1 has SHA-256 [0-9a-f]{64}, pinned is"
    ):
        jars.kafka_broker_jars()
    assert not [entry for entry in (tmp_path / "cache" / "jars").iterdir() if not entry.name.endswith(".lock")]


def test_failed_download_is_one_line_that_names_the_jar(mirror: Path) -> None:
    next(mirror.glob("kafka-raft-*.jar")).unlink()
    with pytest.raises(jars.JarError, match=r"kafka-raft.*UPSERT_PLATFORM_IVY_SETTINGS") as caught:
        jars.kafka_broker_jars()
    assert "\n" not in str(caught.value)


def test_setup_fetches_what_everyone_needs_or_says_why_not_in_one_line(mirror: Path) -> None:
    command = [sys.executable, "-m", "upsert_platform.spark.jars"]
    next(mirror.glob("kafka-raft-*.jar")).unlink()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "fetching 'kafka-4.3.1' failed" in done.stderr
