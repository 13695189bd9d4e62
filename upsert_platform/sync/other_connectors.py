"""Connectors of Flink that the platform does not have, and what takes their place."""

from __future__ import annotations

from typing import Final

_FOLLOWED: Final = "as a source, bring its changes into a topic by change data capture (Debezium, Kafka Connect)"
_READ_ON: Final = "as a target, write an upsert-kafka topic that its own connector reads"
_LAKE: Final = f"as a target, write an upsert-kafka topic that its own writer reads; {_FOLLOWED}"
ELSEWHERE: Final = {
    "print": "`upsert-platform peek TABLE` shows rows; write a table to keep them",
    "blackhole": "leave the INSERT out; nothing is computed for a table that nobody reads",
    "datahub": f"{_READ_ON}; as a source, DataHub speaks Kafka's protocol: 'connector' = 'kafka' with its endpoint",
    "jdbc": "as a target, 'connector' = 'postgres' takes the same options for PostgreSQL; for other databases, write an"
    " upsert-kafka topic that Kafka Connect's JDBC sink reads; as a source, 'connector' = 'mysql-cdc' follows MySQL and"
    " MariaDB",
    "elasticsearch": f"{_READ_ON} (Kafka Connect's Elasticsearch sink)",
    "opensearch": f"{_READ_ON} (Kafka Connect's OpenSearch sink)",
    "hive": "MaxCompute tables are written by 'connector' = 'maxcompute'; other engines read the changelogs, which are"
    " Delta Lake tables",
    "hudi": _LAKE,
    "paimon": _LAKE,
    "iceberg": _LAKE,
    "delta": "changelogs are Delta Lake tables themselves, which other engines read; write upsert-kafka for a copy",
    "starrocks": f"{_READ_ON} (Routine Load, or its Kafka connector); {_FOLLOWED}",
    "doris": f"{_READ_ON} (Routine Load); {_FOLLOWED}",
    "clickhouse": f"{_READ_ON} (its Kafka engine); {_FOLLOWED}",
    "adb": f"{_READ_ON}; {_FOLLOWED}",
    "mongodb": f"{_READ_ON} (MongoDB's Kafka connector); {_FOLLOWED}",
    "hbase": f"'connector' = 'tablestore' has the same model of wide rows; otherwise, {_READ_ON}",
    "cloudhbase": f"'connector' = 'tablestore' has the same model of wide rows; otherwise, {_READ_ON}",
    "redis": f"'connector' = 'tablestore' serves rows by key; otherwise, {_READ_ON}",
    "dynamodb": f"'connector' = 'tablestore' serves rows by key; otherwise, {_READ_ON}",
    "kinesis": f"{_READ_ON}; as a source, mirror the stream into a topic",
    "firehose": _READ_ON,
    "pulsar": "Pulsar speaks Kafka's protocol (KoP): 'connector' = 'kafka' or 'upsert-kafka' with its address",
    "rabbitmq": f"{_READ_ON}; as a source, bring its messages into a topic (Kafka Connect)",
    "sls": f"{_READ_ON}; as a source, SLS speaks Kafka's protocol: 'connector' = 'kafka' with its Kafka endpoint",
    "postgres-cdc": _FOLLOWED,
    "oracle-cdc": _FOLLOWED,
    "sqlserver-cdc": _FOLLOWED,
    "db2-cdc": _FOLLOWED,
    "tidb-cdc": _FOLLOWED,
    "oceanbase": _FOLLOWED,
}
"""Beginnings of names of Flink's other connectors, with what takes their place; docs/refused.md has a row for each."""
