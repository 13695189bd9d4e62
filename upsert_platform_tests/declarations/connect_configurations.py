"""Kafka Connect configurations, and what a project folder with one of them declares."""

from __future__ import annotations

from pathlib import Path

from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.model import Project
from upsert_platform.declarations.project import load_project
from upsert_platform.sync.binding import Binding, bind
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform.tablestore.connect.table import ConnectSink, read_connect_sink

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BASE = {
    "connector.class": "com.aliyun.tablestore.kafka.connect.TableStoreSinkConnector",
    "topics": "t",
    "tablestore.endpoint": "https://i.cn-hangzhou.ots.aliyuncs.com",
    "tablestore.instance.name": "i",
    "tablestore.auth.mode": "aksk",
    "tablestore.access.key.id": "id",
    "tablestore.access.key.secret": "${SECRET}",
    "table.name.format": "kafka_<topic>",
    "auto.create": "true",
}
KEYED = {
    **BASE,
    "primarykey.mode": "record_key",
    "tablestore.kafka_t.primarykey.name": "id, part",
    "tablestore.kafka_t.primarykey.type": "integer,string",
    "tablestore.kafka_t.columns.whitelist.name": "name,score",
    "tablestore.kafka_t.columns.whitelist.type": "string,double",
    "delete.mode": "row",
}
SERIES = {
    **BASE,
    "tablestore.mode": "timeseries",
    "tablestore.timeseries.kafka_t.measurement": "<topic>",
    "tablestore.timeseries.kafka_t.time": "ts",
    "tablestore.timeseries.kafka_t.time.unit": "SECONDS",
}
VARIABLES = {"SECRET": "hunter2", "UPSERT_KAFKA_BOOTSTRAP_SERVERS": "localhost:9092"}


def load(folder: Path, config: dict[str, str], name: str = "sink") -> tuple[Project, list[Problem]]:
    lines = [f"name={name}", *(f"{key}={value}" for key, value in config.items())]
    (folder / "sink.properties").write_text("\n".join(lines))
    return load_project(folder, VARIABLES, connectors=CONNECTORS)


def bound(folder: Path, config: dict[str, str]) -> Binding:
    return bind(*load(folder, config))


def sink_of(binding: Binding, name: str) -> ConnectSink:
    sink, problems = read_connect_sink(binding.targets[name].table)
    assert sink is not None, problems
    return sink


def problems_of(folder: Path, config: dict[str, str]) -> list[Problem]:
    try:
        return list(bound(folder, config).warnings)
    except DeclarationError as error:
        return list(error.problems)


def columns(project: Project, name: str) -> list[tuple[str, str]]:
    return [(column.name, str(column.type)) for column in project.tables[name].columns]
