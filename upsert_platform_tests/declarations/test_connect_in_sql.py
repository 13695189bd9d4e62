"""The rules of the Kafka Connect sink in tables declared in SQL and YAML: key modes, time series, transforms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from upsert_platform.declarations.project import load_project
from upsert_platform.sync.binding import bind
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform.tablestore.connect.options import KeyMode
from upsert_platform.tablestore.connect.table import COLUMNS, ConnectSink, read_connect_sink

SOURCE = {
    "connector": "kafka", "topic": "readings", "properties.bootstrap.servers": "localhost:9092",
    "scan.startup.mode": "earliest-offset", "key.format": "raw", "key.fields": "key", "value.format": "raw",
    "value.fields-include": "EXCEPT_KEY",
}  # fmt: skip
TARGET = {
    "connector": "tablestore-connect", "topics": "readings", "tablestore.endpoint": "https://i.ots.aliyuncs.com",
    "tablestore.instance.name": "i", "tablestore.access.key.id": "id", "tablestore.access.key.secret": "secret",
}  # fmt: skip
SERIES = {
    "tablestore.mode": "timeseries", "tablestore.timeseries.readings.measurement": "metric",
    "tablestore.timeseries.readings.tags": "host", "tablestore.timeseries.readings.time": "at",
    "tablestore.timeseries.readings.time.unit": "MILLISECONDS",
}  # fmt: skip
KEYS = {"tablestore.readings.primarykey.name": "id", "tablestore.readings.primarykey.type": "integer"}
METADATA = ("topic", "partition", "offset", "timestamp")


def _sql(target: dict[str, str]) -> str:
    def options(values: dict[str, str]) -> str:
        return ", ".join(f"'{name}' = '{value}'" for name, value in values.items())

    source = ", ".join(
        f"`{name}` {kind}{' METADATA VIRTUAL' if name in METADATA else ''}" for name, kind in COLUMNS.items()
    )
    columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
    return (
        f"CREATE TABLE records ({source}) WITH ({options(SOURCE)});\n"
        f"CREATE TABLE readings ({columns}) WITH ({options(target)});\n"
        f"INSERT INTO readings SELECT {', '.join(f'`{name}`' for name in COLUMNS)} FROM records;\n"
    )


def _yaml(target: dict[str, str]) -> str:
    # JSON is YAML.
    source = [
        {"name": name, "type": kind, **({"metadata": name, "virtual": True} if name in METADATA else {})}
        for name, kind in COLUMNS.items()
    ]
    columns = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
    tables = [
        {"name": "records", "columns": source, "options": SOURCE},
        {"name": "readings", "columns": columns, "options": target},
    ]
    select = ", ".join(f"`{name}`" for name in COLUMNS)
    return json.dumps({"tables": tables, "inserts": [{"into": "readings", "select": select, "from": "records"}]})


@pytest.fixture(params=["sql", "yaml"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _sink(folder: Path, form: str, **options: str) -> ConnectSink:
    target = {**TARGET, **options}
    (folder / f"readings.{form}").write_text(_sql(target) if form == "sql" else _yaml(target), "utf-8")
    binding = bind(*load_project(folder, {}, connectors=CONNECTORS))
    assert binding.warnings == ()
    assert binding.sources["records"].mode == "append"
    sink, problems = read_connect_sink(binding.targets["readings"].table)
    assert sink is not None, problems
    return sink


@pytest.mark.parametrize(
    ("mode", "options", "key"),
    [
        (KeyMode.KAFKA, {}, (("topic_partition", "string"), ("offset", "integer"))),
        (KeyMode.RECORD_VALUE, KEYS, (("id", "integer"),)),
        (KeyMode.RECORD_KEY, KEYS, (("id", "integer"),)),
    ],
)
def test_key_modes(
    tmp_path: Path, form: str, mode: KeyMode, options: dict[str, str], key: tuple[tuple[str, str], ...]
) -> None:
    sink = _sink(tmp_path, form, **{"primarykey.mode": str(mode)}, **options)
    assert (sink.table_name, sink.wide.key_mode, sink.wide.primary_key) == ("readings", mode, key)


def test_time_series(tmp_path: Path, form: str) -> None:
    points = _sink(tmp_path, form, **SERIES).points
    assert points is not None
    assert (points.measurement, points.tags, points.time, points.unit) == ("metric", ("host",), "at", "MILLISECONDS")


def test_transforms(tmp_path: Path, form: str) -> None:
    options = {
        "transforms": "mask",
        "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
        "transforms.mask.fields": "secret",
    }
    assert len(_sink(tmp_path, form, **options).wide.transforms.steps) == 1
