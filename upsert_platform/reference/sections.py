"""The sections of the options reference: which settings belong to which connector, and what is replaced or refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from upsert_platform.core.options import Settings
from upsert_platform.core.platform_options import PlatformSettings
from upsert_platform.datagen.options import DatagenField, DatagenSettings, FakerField, FakerSettings
from upsert_platform.declarations import connect_options
from upsert_platform.declarations.validate import TRUNCATE_TIMESTAMPS
from upsert_platform.formats import FORMATS
from upsert_platform.kafka import properties
from upsert_platform.kafka.change_topic import CHANGES, MAPPING, WITH_SCHEMA, ChangeTopicSettings
from upsert_platform.kafka.options import KafkaSettings, UpsertKafkaSettings
from upsert_platform.kafka.table import PARTITIONER_REASON
from upsert_platform.maxcompute import replaced
from upsert_platform.maxcompute.options import MaxComputeSettings
from upsert_platform.mysql import options as mysql_options
from upsert_platform.mysql.options import MySqlCdcSettings, MySqlSource
from upsert_platform.reference import texts
from upsert_platform.reference.rows import Row, Section, settings_rows
from upsert_platform.sql import session_settings
from upsert_platform.sync.connectors import CONNECTORS, readable, searchable, writable
from upsert_platform.tablestore.connect.failure_options import FailureSettings
from upsert_platform.tablestore.connect.options import ConnectSettings
from upsert_platform.tablestore.options import TablestoreSettings

_OF_KAFKA_CONNECT: Final = (
    *("name", "connector.class", "tasks.max", "transforms", "predicates", "header.converter", "key.converter"),
    *("value.converter", "config.action.reload", "errors.", "consumer.override.", "producer.override."),
    "admin.override.",
)
_KAFKA_WITHOUT_EFFECT: Final = {"scan.topic-partition-discovery.interval": ""}


def all_sections() -> Iterator[Section]:
    """Every section, in the order of the reference."""
    yield Section("upsert-kafka", "Connector upsert-kafka", _about("upsert-kafka"), tuple(_upsert_kafka()))
    yield Section(
        "kafka", "Connector kafka", _about("kafka"), settings_rows(KafkaSettings, without_effect=_KAFKA_WITHOUT_EFFECT)
    )
    yield Section(CHANGES, f"Connector {CHANGES}", _about(CHANGES), tuple(_change_topic()))
    yield client_properties()
    yield Section("tablestore", "Connector tablestore", _about("tablestore"), settings_rows(TablestoreSettings))
    rows = settings_rows(MaxComputeSettings, without_effect=replaced.REPLACED, notes=_maxcompute_notes())
    yield Section("maxcompute", "Connector maxcompute", _about("maxcompute"), rows)
    for found in CONNECTORS.values():
        if found.option_model is not None:
            rows = settings_rows(found.option_model, without_effect=found.ignored)
            yield Section(found.name, f"Connector {found.name}", _about(found.name), rows)
    yield Section("mysql-cdc", "Connector mysql-cdc", _about("mysql-cdc"), settings_rows(MySqlCdcSettings))
    yield Section("mysql", "Source mysql of ingestion pipelines", texts.MYSQL_SOURCE, tuple(_mysql_source()))
    made: dict[str, tuple[type[Settings], ...]] = {
        "faker": (FakerSettings, FakerField),
        "datagen": (DatagenSettings, DatagenField),
    }
    for name, models in made.items():
        yield Section(
            name, f"Connector {name}", _about(name), tuple(row for model in models for row in settings_rows(model))
        )
    for name, form in FORMATS.items():
        about = texts.CHANGE_FORMAT if form.changes else texts.FORMAT
        rows = settings_rows(form.settings) or (Row("(none)", "", "", "The format has no options."),)
        yield Section(name, f"Format {name}", about.format(name=name), rows)
    yield kafka_connect()
    yield platform_settings()


def _about(connector: str) -> str:
    """Return the uses of a connector's tables: read, write, or both."""
    uses = [use for use, connectors in (("read", readable()), ("written", writable())) if connector in connectors]
    alone = (
        "Lookup joins alone read such a table." if connector in searchable() else "No insert can use such a table yet."
    )
    told = f"Tables of this connector are {' and '.join(uses)}." if uses else alone
    return f"{CONNECTORS[connector].about or texts.CONNECTORS[connector]} {told}"


def _maxcompute_notes() -> dict[str, str]:
    """Return, per option that not every table uses, when it applies."""
    one = "Used with `sink.coordinator.enable` = `false`; else"
    notes = {
        name: f"Used with `write.api` = `tunnel`; else {why}" for name, why in replaced.REPLACED_BY_MAXSTORAGE.items()
    }
    notes |= {name: f"Not used with `write.api` = `tunnel`: {why}" for name, why in replaced.REPLACED_BY_TUNNEL.items()}
    return notes | {name: f"{one} {why}" for name, why in replaced.REPLACED_BY_COORDINATOR.items()}


def _upsert_kafka() -> Iterator[Row]:
    yield from settings_rows(UpsertKafkaSettings, without_effect=_KAFKA_WITHOUT_EFFECT)
    yield Row("sink.partitioner", "", "flink", f"{PARTITIONER_REASON[0].upper()}{PARTITIONER_REASON[1:]}.", "refused")


def _change_topic() -> Iterator[Row]:
    known = {row.name: row for row in settings_rows(UpsertKafkaSettings, without_effect=_KAFKA_WITHOUT_EFFECT)}
    for row in settings_rows(ChangeTopicSettings, without_effect=_KAFKA_WITHOUT_EFFECT):
        if known.get(row.name) != row:
            yield row
    yield Row(MAPPING, "", "flink", texts.TOPIC_MAPPING)
    for name in WITH_SCHEMA:
        yield Row(name, "false", "flink", "Messages are written without their schema.", "refused")


def _mysql_source() -> Iterator[Row]:
    yield from settings_rows(MySqlSource)
    for name, reason in mysql_options.REPLACED.items():
        yield Row(name, "", "flink, alibaba", _capital(reason), "no effect")
    for name, reason in mysql_options.REFUSED.items():
        yield Row(name, "", "flink, alibaba", _capital(reason), "refused")


def client_properties() -> Section:
    """Properties of Java clients, as `upsert_platform.kafka.properties` translates them."""
    rows: dict[str, Row] = {}
    roles = ((properties.COMMON, "both"), (properties.CONSUMER, "reading"), (properties.PRODUCER, "writing"))
    for names, role in roles:
        for name in names - {"bootstrap.servers"}:
            rows[name] = Row(name, "(same)", role, texts.PROPERTIES.get(name, ""))
    for name, native in properties.RENAMED.items():
        role = next(role for names, role in roles if native in names)
        rows[name] = Row(name, native, role, texts.PROPERTIES.get(name, ""))
    for name in properties.HANDLED:
        becomes, role, note = texts.TRANSLATED[name]
        rows[name] = Row(name, becomes, role, note, "refused" if name == "partitioner" else "")
    for name, reason in properties.OWNED.items():
        rows[name] = Row(name, "", "", f"{reason[0].upper()}{reason[1:]}.", "no effect")
    for name in properties.JVM_ONLY:
        rows[name] = Row(name, "", "", "Concerns Java clients only.", "no effect")
    return Section(
        "properties",
        "Client properties of Kafka tables",
        texts.CLIENT_PROPERTIES,
        tuple(rows[name] for name in sorted(rows)),
        ("properties.*", "becomes", "client", "meaning"),
    )


def kafka_connect() -> Section:
    """Options of a Kafka Connect configuration of the Tablestore sink connector."""
    models = (KafkaSettings, TablestoreSettings, ConnectSettings, FailureSettings)
    known = {row.name: row for model in models for row in settings_rows(model)}
    rows = []
    for name in (*connect_options.READ, *connect_options.PASSED_ON, *connect_options.SOURCE_OPTIONS):
        if name in texts.CONNECT:
            default, meaning = texts.CONNECT[name]
            rows.append(Row(name, default, _connect_origin(name), meaning))
        elif name in known:
            rows.append(known[name])
        else:
            raise LookupError(f"the reference has no sentence for Kafka Connect option '{name}'; add it to CONNECT")
    rows += [Row(name, "", _connect_origin(name), meaning) for name, meaning in texts.CONNECT_PER_TABLE.items()]
    for name, reason in connect_options.WITHOUT_EFFECT.items():
        rows.append(Row(name, "", _connect_origin(name), _capital(reason), "no effect"))
    for prefix, reason in connect_options.WITHOUT_EFFECT_PREFIXES.items():
        rows.append(Row(f"{prefix}*", "", _connect_origin(prefix), _capital(reason), "no effect"))
    for name, reason in connect_options.REFUSED.items():
        rows.append(Row(name, "", _connect_origin(name), _capital(reason), "refused"))
    return Section("kafka-connect", "Kafka Connect configurations", texts.KAFKA_CONNECT, tuple(rows))


def _connect_origin(name: str) -> str:
    """Return the document of an option: Kafka Connect's, which covers every connector, or the connector's."""
    return "kafka-connect" if name.startswith(_OF_KAFKA_CONNECT) else "tablestore"


def platform_settings() -> Section:
    """Return the platform's own options: of every table, the environment, SET statements."""
    rows = [*settings_rows(PlatformSettings), Row(TRUNCATE_TIMESTAMPS, "false", "platform", texts.TRUNCATE_TIMESTAMPS)]
    rows += [Row(name, "", "platform", text) for name, text in texts.CONTRACTS.items()]
    rows += [Row(name, default, "platform", text) for name, (default, text) in texts.ENVIRONMENT.items()]
    for name, reason in session_settings.REPLACED:
        shown = f"{name}*" if name.endswith((".", "-")) else name
        origin = "maxcompute" if shown.startswith("odps.") else "flink"
        rows.append(Row(f"SET '{shown}'", "", origin, _capital(reason), "no effect"))
    rows.append(Row("SET 'table.local-time-zone'", "UTC", "flink", texts.TIME_ZONE))
    means = _capital(session_settings.STATE_TTL_MEANS)
    rows.append(Row(f"SET '{session_settings.STATE_TTL}'", "0", "flink", means))
    rows.append(Row(f"SET '{session_settings.LATENESS}'", "", "flink", _capital(session_settings.LATENESS_MEANS)))
    means = _capital(session_settings.MATERIALIZE_MEANS)
    rows.append(Row(f"SET '{session_settings.MATERIALIZE}'", "AUTO", "flink", means))
    for (name, value), reason in session_settings.REFUSED.items():
        rows.append(Row(f"SET '{name}' = '{value}'", "", "flink", _capital(reason), "refused"))
    return Section("platform", "Every table, and the environment", texts.PLATFORM, tuple(rows))


def _capital(reason: str) -> str:
    return f"{reason[0].upper()}{reason[1:]}."
