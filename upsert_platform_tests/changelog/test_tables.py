"""Tables of a lake are reached by their location; storage options come from a file and show nowhere."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from upsert_platform.changelog.data_files import read_files
from upsert_platform.changelog.lake import OPTIONS_VARIABLE, Lake
from upsert_platform.changelog.tables import TableLocation, create_table, open_table
from upsert_platform.core.errors import EndpointError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the environment names."""
    file = tmp_path / "lake.options"
    file.write_text("# where it is\naws_endpoint=http://127.0.0.1:1\n\naws_secret_access_key=hunter=2\n")
    monkeypatch.setenv(OPTIONS_VARIABLE, str(file))
    return file


def test_options_come_from_the_named_file_for_uris_alone(options: Path) -> None:
    named = {"aws_endpoint": "http://127.0.0.1:1", "aws_secret_access_key": "hunter=2"}
    lake = Lake.at("s3://bucket/lake/")
    assert lake.refused("t").uri == "s3://bucket/lake/refused/t"
    for location in (lake.changelog("t"), lake.query("t$query"), lake.refused("t"), lake.query("t").below("state")):
        assert location.storage_options == named
    for root in (str(options.parent), options.parent.as_uri()):
        assert Lake.at(root).changelog("t").storage_options is None


def test_a_location_takes_its_options_along_and_shows_none(options: Path) -> None:
    location = Lake.at("s3://bucket/lake").changelog("t")
    options.unlink()  # a task on another machine has no such file
    assert pickle.loads(pickle.dumps(location)).storage_options == location.storage_options
    assert "hunter" not in f"{location} {location!r} {Lake.at(str(options.parent))!r} {location.options}"


@pytest.mark.usefixtures("options")
def test_spark_shows_no_options_of_what_its_tasks_read(spark: SparkSession) -> None:
    location = Lake.at("s3://bucket/lake").changelog("t")
    frame = read_files(spark, location, ["a.parquet"], schema="id BIGINT")
    shown = frame._jdf.queryExecution().toString()
    assert "MapInArrow" in shown
    assert "hunter" not in shown + spark.sparkContext.getConf().toDebugString()


@pytest.mark.parametrize(("text", "told"), [("hunter2\n", ":1: a line is name=value"), (None, "cannot be read")])
def test_what_is_wrong_with_the_file_is_told_without_its_text(options: Path, text: str | None, told: str) -> None:
    if text is None:
        options.unlink()
    else:
        options.write_text(text)
    with pytest.raises(EndpointError, match=told) as caught:
        Lake.at("s3://bucket/lake")
    assert "hunter2" not in str(caught.value)


def test_a_table_is_created_once_and_opened_where_it_is(tmp_path: Path) -> None:
    for uri in (str(tmp_path / "by path"), (tmp_path / "by uri").as_uri()):
        location = TableLocation(uri)
        assert open_table(location) is None
        for identity in ("first", "second"):
            create_table(location, pa.schema([pa.field("id", pa.int64())]), {"upsert.changelog.id": identity})
        found = open_table(location)
        assert found is not None
        assert found.metadata().configuration["upsert.changelog.id"] == "first"
