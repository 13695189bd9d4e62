"""Where Spark runs: what is chosen, which settings follow, and what is refused before anything runs."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement

from upsert_platform.cli.main import main
from upsert_platform.core.errors import EndpointError
from upsert_platform.spark.placement import problems_of, refuse_wrong
from upsert_platform.spark.profiles import Profile, spark_place, without_secrets
from upsert_platform.spark.session import settings_of

REMOTE = {"spark.master": "spark://10.0.0.7:7077"}
HERE = {"spark.master": "spark://127.0.0.1:7077"}
KUBERNETES = {"spark.master": "k8s://https://10.0.0.1:6443", "spark.kubernetes.container.image": "upsert:1"}
S3 = "s3://lake/one"


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("UPSERT_SPARK_PROFILE", "UPSERT_SPARK_SETTINGS", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "HADOOP_CONF_DIR")
    for name in (*names, "YARN_CONF_DIR", "UPSERT_PLATFORM_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("profile", "variable", "settings", "chosen"),
    [
        (None, None, {}, Profile.LOCAL),
        (None, None, REMOTE, Profile.STANDALONE),
        (None, None, {"spark.master": "yarn"}, Profile.YARN),
        (None, None, KUBERNETES, Profile.KUBERNETES),
        (None, None, {"spark.master": "local[3]"}, Profile.LOCAL),
        (None, "standalone", REMOTE, Profile.STANDALONE),
        ("yarn", "standalone", {}, Profile.YARN),
    ],
)
def test_the_nearest_word_chooses(
    profile: str | None,
    variable: str | None,
    settings: dict[str, str],
    chosen: Profile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if variable is not None:
        monkeypatch.setenv("UPSERT_SPARK_PROFILE", variable)
    assert spark_place(settings, profile=profile).profile is chosen


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(EndpointError, match="no Spark profile 'standalon'; did you mean 'standalone'"):
        spark_place(profile="standalon")


def test_settings_win_over_the_file_and_the_file_over_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "spark.conf"
    named.write_text("# ours\n\nspark.master  spark://10.0.0.7:7077\nspark.cores.max=4\nspark.ui.enabled = true \n")
    monkeypatch.setenv("UPSERT_SPARK_SETTINGS", str(named))
    place = spark_place({"spark.cores.max": "8"})
    settings = settings_of(place)
    assert place.profile is Profile.STANDALONE
    assert (settings["spark.cores.max"], settings["spark.ui.enabled"]) == ("8", "true")
    assert settings["spark.scheduler.minRegisteredResourcesRatio"] == "0.8"
    named.write_text("spark.master\n")
    with pytest.raises(EndpointError, match=r"spark\.conf:1: a line is a name that begins with 'spark\.'"):
        spark_place()


def test_a_local_session_is_as_ever_and_a_cluster_has_no_loopback() -> None:
    local = settings_of(spark_place())
    assert local["spark.master"].startswith("local[")
    assert local["spark.driver.host"] == local["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.sql.shuffle.partitions" in local
    assert "spark.submit.deployMode" not in local
    remote = settings_of(spark_place(REMOTE))
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"} & remote.keys()
    assert remote["spark.sql.ansi.enabled"] == "false"  # what decides values is the same everywhere
    assert settings_of(spark_place(HERE))["spark.driver.host"] == "127.0.0.1"  # nobody elsewhere reaches its master


def test_executors_run_the_python_of_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = {**REMOTE, "spark.archives": "/a/data.zip,/a/platform.tar.gz#environment"}
    assert spark_place(REMOTE).python == sys.executable
    assert spark_place(packed).python == "./environment/bin/python"
    assert spark_place({**packed, "spark.pyspark.python": "/opt/python"}).python == "/opt/python"
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3.11")
    assert spark_place(packed).python == "/usr/bin/python3.11"


@pytest.mark.parametrize(
    ("profile", "settings", "lake", "told"),
    [
        ("local", REMOTE, S3, "profile 'local' and 'spark.master' = 'spark://10.0.0.7:7077' do not fit"),
        ("standalone", {"spark.master": "yarn"}, S3, "use profile 'yarn'"),
        ("standalone", {}, S3, "needs 'spark.master' = 'spark://HOST:7077'"),
        ("kubernetes", {}, S3, "needs 'spark.master' = 'k8s://"),
        ("kubernetes", {"spark.master": "k8s://https://k:1"}, S3, "needs 'spark.kubernetes.container.image'"),
        ("yarn", {}, S3, "name the folder with yarn-site.xml and core-site.xml in HADOOP_CONF_DIR"),
        ("connect", {}, S3, "use 'standalone', 'yarn' or 'kubernetes'"),
        (None, {"spark.remote": "sc://h"}, S3, "profile 'connect' cannot be used"),
        (None, {**REMOTE, "spark.submit.deployMode": "cluster"}, S3, "the process of a run is the driver"),
        (
            None,
            {**REMOTE, "spark.driver.host": "localhost"},
            S3,
            "'spark.driver.host' = 'localhost' is an address that",
        ),
        (None, {**REMOTE, "spark.driver.bindAddress": "127.0.0.1"}, S3, "'spark.driver.bindAddress' = '127.0.0.1'"),
        (None, REMOTE, "/data/lake", "UPSERT_PLATFORM_HOME=file:///data/lake"),
        (None, KUBERNETES, "/data/lake", "do not see: keep the lake in object storage"),
        (None, {**REMOTE, "spark.archives": "/gone.tar.gz#environment"}, S3, "upsert-platform package /gone.tar.gz"),
    ],
)
def test_what_cannot_work_is_refused_with_its_remedy(
    profile: str | None, settings: dict[str, str], lake: str, told: str
) -> None:
    place = spark_place(settings, profile=profile)
    with pytest.raises(EndpointError, match=r".") as refused:
        refuse_wrong(place, lake=lake)
    assert told.lower() in str(refused.value).lower()


def test_the_reason_against_connect_still_holds() -> None:
    generated = distribution("pyspark").locate_file("pyspark/sql/connect/proto/base_pb2.py").read_text("utf-8")
    (needed,) = re.findall(r"Domain[.]PUBLIC, (\d+), (\d+),", generated)
    (of_sdk,) = (
        item for item in map(Requirement, distribution("tablestore").requires or ()) if item.name == "protobuf"
    )
    assert not of_sdk.specifier.contains(".".join(needed))
    (told,) = problems_of(spark_place(profile="connect"))
    assert f"protobuf {'.'.join(needed)} or newer" in told


@pytest.mark.parametrize(
    ("settings", "lake"),
    [
        ({}, "/data/lake"),
        ({"spark.driver.host": "127.0.0.1"}, "/data/lake"),
        (HERE, "/data/lake"),
        (REMOTE, S3),
        (REMOTE, "file:///mounted/lake"),
        ({**REMOTE, "spark.driver.host": "10.0.0.3"}, S3),
        (KUBERNETES, S3),
    ],
)
def test_what_works_is_taken(settings: dict[str, str], lake: str) -> None:
    assert list(problems_of(spark_place(settings), lake=lake)) == []


def test_loopback_that_the_environment_names_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert "SPARK_LOCAL_IP = '127.0.0.1'" in next(problems_of(spark_place(REMOTE), lake=S3))
    monkeypatch.delenv("SPARK_LOCAL_IP")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert list(problems_of(spark_place(profile="yarn"), lake=S3)) == []


def test_submit_args_are_those_of_the_session_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "spark.conf"
    named.write_text("spark.master spark://10.0.0.7:7077\nspark.authenticate.secret hush-hush\nspark.cores.max 3\n")
    monkeypatch.setenv("UPSERT_SPARK_SETTINGS", str(named))
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", S3)
    done = CliRunner().invoke(main, ["submit-args"])
    assert done.exit_code == 0, done.output
    words = shlex.split(done.stdout)
    shown = dict(word.split("=", 1) for word in words[1::2])
    assert set(words[::2]) == {"--conf"}
    assert shown == without_secrets(settings_of(spark_place()))
    assert (shown["spark.authenticate.secret"], shown["spark.cores.max"]) == ("***", "3")
    assert "hush-hush" not in done.output
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path))
    refused = CliRunner().invoke(main, ["submit-args", "standalone"])
    assert refused.exit_code == 1
    assert "keep the lake in object storage" in refused.stderr
