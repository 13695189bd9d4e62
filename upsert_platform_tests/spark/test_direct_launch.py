"""The command that starts Spark's JVM without asking ``spark-submit``: what that would have started, without MLlib."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from upsert_platform.spark import direct_launch
from upsert_platform.spark.class_archive import spark_folder
from upsert_platform.spark.direct_launch import class_path, launch_command
from upsert_platform.spark.gateway import start_gateway
from upsert_platform.spark.profiles import spark_place
from upsert_platform.spark.session import settings_of
from upsert_platform.spark.settings_file import settings_file

SUBMIT = ["--properties-file", "settings", "--load-spark-defaults", "pyspark-shell"]
PROGRAM = """
import sys
{imports}
from upsert_platform.spark.session import open_session, stop_session
spark = open_session({settings})
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors
frame = spark.createDataFrame([(Vectors.dense(1.0, 2.0),)], ["v"])
print(frame.select(vector_to_array("v").alias("v")).first().v)
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "PYSPARK_SUBMIT_ARGS", *direct_launch._OF_USERS):
        monkeypatch.delenv(name, raising=False)


def started(tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of the JVM that a gateway starts, as the system tells them."""
    settings = settings_of(spark_place())
    with settings_file(settings, tmp_path), Path(os.devnull).open("wb") as nowhere:
        gateway = start_gateway(settings, stderr=nowhere.fileno())
    process = Path(f"/proc/{gateway.proc.pid}")
    arguments = (process / "cmdline").read_text().split("\0")[:-1]
    variables = dict(item.partition("=")[::2] for item in (process / "environ").read_text().split("\0")[:-1])
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    return arguments, variables


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="commands of processes are read in /proc")
def test_the_jvm_is_the_one_that_spark_submit_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, ours_in = started(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("upsert_platform.spark.gateway.launch_command", lambda *_, **__: None)
        theirs, theirs_in = started(tmp_path)
    assert theirs[1] == ours[1] == "-cp"
    assert ours[3:] == theirs[3:]
    assert Path(ours[0]).resolve() == Path(theirs[0]).resolve()
    own_to_each = {"_PYSPARK_DRIVER_CONN_INFO_PATH", "SHLVL", "_", "PWD", "OLDPWD", "SPARK_BEELINE_OPTS"}
    assert {k: v for k, v in ours_in.items() if k not in own_to_each} == {
        k: v for k, v in theirs_in.items() if k not in own_to_each
    }
    *named, jars = theirs[2].split(os.pathsep)
    assert jars == str(spark_folder() / "jars" / "*")
    found = {str(jar) for jar in (spark_folder() / "jars").glob("*.jar")}
    left_out = {jar for jar in found if "/spark-mllib_2" in jar}
    assert len(left_out) == 1
    assert ours[2].split(os.pathsep)[: len(named)] == named
    assert set(ours[2].split(os.pathsep)) == {*named, *found} - left_out


@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        *(({name: "x"}, {}) for name in direct_launch._OF_USERS),
        ({"SPARK_HOME": "/opt/spark"}, {}),
        ({}, {"spark.driver.extraClassPath": "a.jar"}),
        ({}, {"spark.driver.extraLibraryPath": "/lib"}),
        ({}, {"spark.submit.deployMode": "cluster"}),
    ],
    ids=str,
)
def test_what_a_user_has_set_is_left_to_spark_submit(
    variables: dict[str, str], settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launch_command({}, SUBMIT, mllib=False) is not None
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launch_command(settings, SUBMIT, mllib=False) is None


@pytest.mark.parametrize(
    ("given", "alone"),
    [
        (None, True),
        ("pyspark-shell", True),
        ("--driver-memory 1g pyspark-shell", False),
        ("--properties-file {file} pyspark-shell", False),
        ("--properties-file={file} pyspark-shell", False),
    ],
)
def test_options_of_a_user_are_left_to_spark_submit(
    given: str | None, alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "own.properties"
    named.write_text("spark.driver.memory=1g\n", "utf-8")
    if given is not None:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given.format(file=named))
    with settings_file({"spark.app.name": "a"}, tmp_path) as found:
        assert found is alone


def test_memory_and_java_options_are_words_of_the_command() -> None:
    settings = {
        "spark.driver.memory": "3g", "spark.driver.defaultJavaOptions": "-Da=1 '-Db=two words'",
        "spark.driver.extraJavaOptions": "-Da=2",
    }  # fmt: skip
    command = launch_command(settings, SUBMIT, mllib=False)
    assert command is not None
    assert command[3:7] == ["-Xmx3g", "-Da=1", "-Db=two words", "-Da=2"]


def test_mllib_stands_last_so_that_the_archive_of_classes_fits() -> None:
    assert class_path(mllib=True).startswith(class_path(mllib=False) + os.pathsep)


@pytest.mark.whole_runs
@pytest.mark.parametrize(
    ("imports", "settings", "works"),
    [("import pyspark.ml", "", True), ("", '{"spark.driver.extraClassPath": "/nowhere"}', True), ("", "", False)],
    ids=["imported before", "asked for", "neither"],
)
def test_a_program_that_uses_mllib_has_it(imports: str, settings: str, works: bool) -> None:
    program = PROGRAM.format(imports=imports, settings=settings)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) == works, done.stderr[-2000:]
    if works:
        assert done.stdout == "[1.0, 2.0]\n"
