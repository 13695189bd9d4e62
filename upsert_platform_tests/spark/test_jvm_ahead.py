"""A JVM that is started before it is needed: taken by the session that it fits, ended where none does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from upsert_platform.graph import run_begins

BEGIN = """
import os, sys, psutil
from upsert_platform.spark import jvm_ahead, session

def jvms():
    return [item.pid for item in psutil.Process().children(recursive=True) if item.name() == "java"]

session.begin_jvm()
jvm_ahead._begun.join()
ahead = jvms()
assert len(ahead) == 1, ahead
"""
WORKS = """
assert spark.range(1000).selectExpr("sum(id)").first()[0] == 499500
assert spark.sparkContext.parallelize([1, 2], 2).map(lambda item: item * 2).collect() == [2, 4]
assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
assert spark.sparkContext.getConf().get("spark.rdd.compress") in ("true", "True")
"""


def _run(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", BEGIN + text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.whole_runs
def test_the_session_of_the_process_takes_it() -> None:
    _run(f"spark = session.open_session(brief=True)\nassert jvms() == ahead\n{WORKS}\nsession.stop_session(spark)")


_SETTINGS = """
changing = ("Time", ".id", ".port", ".dir", "JavaOptions")
print(sorted(item for item in spark.sparkContext.getConf().getAll() if not item[0].endswith(changing)))
"""


@pytest.mark.whole_runs
def test_its_session_has_the_settings_of_one_that_pyspark_opens() -> None:
    ahead = _run(f"spark = session.open_session(brief=True)\nassert jvms() == ahead\n{_SETTINGS}")
    other = _run(f"jvm_ahead.give_up()\nspark = session.open_session(brief=True)\n{_SETTINGS}")
    assert "spark.sql.session.timeZone" in ahead
    assert ahead == other


@pytest.mark.whole_runs
@pytest.mark.parametrize(
    "otherwise",
    [
        "spark = session.open_session({'spark.sql.ansi.enabled': 'true'}, brief=True)",
        "spark = session.open_session(brief=False)",
        "os.environ['AWS_REGION'] = 'elsewhere'\nspark = session.open_session(brief=True)",
    ],
    ids=["another setting", "for many rows", "another environment of workers"],
)
def test_a_session_that_it_does_not_fit_ends_it_and_starts_another(otherwise: str) -> None:
    _run(f"{otherwise}\nassert len(jvms()) == 1 and jvms() != ahead, jvms()\n{WORKS}")


@pytest.mark.whole_runs
def test_one_that_nobody_needs_is_ended() -> None:
    _run("jvm_ahead.give_up()\nassert not jvms()\nspark = session.open_session(brief=True)\nassert len(jvms()) == 1")


@pytest.mark.whole_runs
def test_one_that_dies_is_no_matter() -> None:
    _run(f"psutil.Process(ahead[0]).kill()\npsutil.Process(ahead[0]).wait()\nspark = session.open_session()\n{WORKS}")


@pytest.mark.parametrize(
    ("command", "is_begun"),
    [
        (["dagster", "job", "execute", "-m", "upsert_platform.definitions", "-j", "sync"], True),
        (["dagster", "api", "execute_run", "{}"], True),
        (["dagster", "job", "execute", "-m", "upsert_platform.definitions", "-j", "stream"], False),
        (["dagster", "job", "list"], False),
        (["dagster", "api", "grpc"], False),
        (["dagster", "definitions", "validate"], False),
        (["pytest"], False),
    ],
)
def test_it_is_started_by_the_process_of_a_run(
    command: list[str], *, is_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bool] = []
    monkeypatch.setattr(run_begins, "begin_jvm", lambda: begun.append(True))
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setenv("UPSERT_SPARK_LOCAL_ROWS", "0")
    run_begins.begin_in_process_of_run()
    assert begun == [True] * is_begun
    monkeypatch.setenv("UPSERT_SPARK_LOCAL_ROWS", "100")
    run_begins.begin_in_process_of_run()
    assert len(begun) == is_begun, "runs up to the local bound need no JVM"
    monkeypatch.setenv("UPSERT_SPARK_LOCAL_ROWS", "0")
    monkeypatch.setenv("UPSERT_SPARK_PROFILE", "yarn")
    run_begins.begin_in_process_of_run()
    assert len(begun) == is_begun, "executors are elsewhere"
