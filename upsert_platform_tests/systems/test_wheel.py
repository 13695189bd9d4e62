"""The wheel works alone: in an empty folder, without the checkout, its commands set it up and run the demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from upsert_platform_tests.systems.installed import CHECKOUT, Installed

pytestmark = [pytest.mark.systems, pytest.mark.timeout(900)]


def test_the_wheel_holds_every_file_of_the_package(installed: Installed) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "upsert_platform"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    ).stdout.split()
    with zipfile.ZipFile(installed.wheel) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    present = {name for name in listed if (CHECKOUT / name).is_file() and not name.endswith("/README.md")}
    assert present - held == set()
    assert not {name for name in held if not name.startswith("upsert_platform/")}


def test_an_index_takes_the_wheel_and_the_sources_which_make_the_same_wheel(
    installed: Installed, tmp_path: Path
) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    tools = tmp_path / "tools"
    _done([*pip, "install", "--quiet", "--no-compile", "--target", str(tools), "build>=1.2", "twine>=6"], cwd=tmp_path)
    variables = {**os.environ, "PYTHONPATH": str(tools), "NO_COLOR": "1"}
    sources = str(installed.folder / "source")  # what the wheel was built of
    build = [sys.executable, "-m", "build", "--sdist", "--outdir", str(tmp_path / "dist"), sources]
    _done(build, cwd=tmp_path, env=variables)
    [archive] = (tmp_path / "dist").iterdir()
    _done([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path / "again"), str(archive)], cwd=tmp_path)
    [again] = (tmp_path / "again").iterdir()
    with zipfile.ZipFile(installed.wheel) as first, zipfile.ZipFile(again) as second:
        assert {item.filename: item.CRC for item in first.infolist() if not item.filename.endswith("/RECORD")} == {
            item.filename: item.CRC for item in second.infolist() if not item.filename.endswith("/RECORD")
        }
    command = [sys.executable, "-m", "twine", "check", "--strict", str(installed.wheel), str(archive)]
    checked = _done(command, cwd=tmp_path, env=variables)
    assert checked.stdout.count("PASSED") == 2, checked.stdout


def _done(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_set_up_and_demo_in_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    where = installed.run("python", "-c", "import upsert_platform; print(upsert_platform.__file__)", cwd=tmp_path)
    assert where.stdout.startswith(str(installed.folder)), where
    ready = installed.run("upsert-platform", "setup", cwd=tmp_path, timeout=300)
    assert ready.returncode == 0, ready.stdout + ready.stderr
    assert "archive of Spark's classes: /" in ready.stdout
    settings = tmp_path / ".upsert_platform" / "dagster" / "dagster.yaml"
    assert "run_monitoring" in settings.read_text("utf-8")
    settings.write_text("telemetry:\n  enabled: false\n", "utf-8")
    again = installed.run("upsert-platform", "setup", cwd=tmp_path, timeout=60)
    assert again.stdout == ready.stdout
    assert "run_monitoring" not in settings.read_text("utf-8")  # what is there is left as it is

    shown = installed.run("upsert-platform", "demo", cwd=tmp_path, timeout=600)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stdout.count("equal to a plain count of the records") == 4
    assert {path.name for path in tmp_path.iterdir()} == {".upsert_platform"}


def test_the_archive_runs_wherever_it_is_unpacked(archive: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "environment"
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder)], check=True)
    code = (
        "import sys, json, ssl, pyarrow, deltalake, confluent_kafka, odps, tablestore, upsert_platform;"
        "from upsert_platform.kafka.source import read_range;"
        "print(json.dumps([sys.prefix, ssl.__file__, pyarrow.__file__, upsert_platform.__file__, *sys.path]))"
    )
    # As Spark starts it: by a path relative to where it works, with packages of its own on the path.
    done = subprocess.run(
        ["./environment/bin/python", "-c", code], cwd=folder.parent, capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": "/of/spark.zip"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    places = [place for place in json.loads(done.stdout) if place]
    assert places.count("/of/spark.zip") == 1
    assert all(place.startswith(str(folder)) for place in places if place != "/of/spark.zip"), places
    assert not list(folder.glob("lib/python3*/site-packages/pyspark/jars"))
