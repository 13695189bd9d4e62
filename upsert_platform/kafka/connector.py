"""The connectors of Kafka: `upsert-kafka` and `kafka-changes`, read and written, and `kafka`, read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from upsert_platform.core.connector import ControlPlace, EndpointValue, Readable, Writable
from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Table
from upsert_platform.core.source import Source
from upsert_platform.kafka.change_topic import CHANGES, MAPPING, read_as_changes, topic_of
from upsert_platform.kafka.shared import cluster
from upsert_platform.kafka.sink.changes import ChangeTopicDestination
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import KafkaTable, read_kafka_table

if TYPE_CHECKING:
    from upsert_platform.core.destination import Destination


class KafkaConnector(Readable):
    """`kafka`: every record counts for itself."""

    name = "kafka"
    kind = "kafka"
    endpoint = "kafka"
    endpoint_values = (
        EndpointValue(
            "bootstrap_servers",
            "properties.bootstrap.servers",
            "UPSERT_KAFKA_BOOTSTRAP_SERVERS",
            stand_in="memory:9092",
        ),
    )
    place_option = "topic"
    has_topics = True
    written_instead = (
        "nothing distinguishes a record that is written twice from two: declare it as 'upsert-kafka' with a"
        " PRIMARY KEY, or give it a change data format, such as 'format' = 'debezium-json'"
    )

    def read(self, table: Table) -> tuple[Source | None, list[Problem]]:
        """Checks a table that is read: its source, or None when there are errors, and everything found."""
        kafka, problems = read_kafka_table(table)
        return None if kafka is None else TopicSource(table, kafka), problems

    def streams(self, table: Table) -> tuple[str, ...]:
        """Names of the topics; a pattern stands for the topics that it will match."""
        pattern = table.options.get("topic-pattern")
        if pattern:
            return (f"pattern {pattern}",)
        return tuple(item.strip() for item in table.options.get("topic", "").split(";") if item.strip())


class UpsertKafkaConnector(KafkaConnector, Writable[KafkaTable]):
    """`upsert-kafka`: a record is the last value of its key, a null value deletes it."""

    name = "upsert-kafka"
    keyed = True
    pipeline_options: ClassVar[Mapping[str, str]] = {
        "key.format": "json",
        "value.format": "json",
        "value.fields-include": "ALL",
    }

    def check(self, table: Table) -> tuple[KafkaTable | None, list[Problem]]:
        """Checks a table that is written."""
        return read_kafka_table(table, writes=True)

    def open(self, checked: KafkaTable) -> Destination:
        """The topic as a destination."""
        return KafkaDestination(checked)

    def control_place(self, checked: KafkaTable) -> ControlPlace:
        """The topic: it is kept equal to one table, so a second one's rows would be taken for the first one's."""
        topic = checked.settings.topic[0]
        return ControlPlace(
            ("kafka", cluster(checked.settings.bootstrap_servers), topic),
            f"topic '{topic}', and would take each other's position for their own",
            "Write it by one INSERT, or give each table a topic of its own",
        )

    def fraction_digits(self, table: Table) -> int:
        """Texts hold microseconds, and Avro holds milliseconds."""
        formats = (table.options.get(name, "") for name in ("key.format", "value.format", "format"))
        return 3 if any(name.strip().startswith("avro") for name in formats) else 6


class ChangeTopicConnector(UpsertKafkaConnector):
    """`kafka-changes`: a record is a change, with the row before and after; what pipelines call sink `kafka`."""

    name = CHANGES
    pipeline_type = "kafka"
    tells_before = True
    pipeline_options: ClassVar[Mapping[str, str]] = {"key.format": "json", "value.format": "debezium-json"}

    def read(self, table: Table) -> tuple[Source | None, list[Problem]]:
        """Checks a table that is read: its source, or None when there are errors, and everything found."""
        checked, problems = self.check(table)
        if checked is None:
            return None, problems
        kafka, found = read_kafka_table(read_as_changes(table))
        return None if kafka is None else TopicSource(table, kafka), [*problems, *found]

    def open(self, checked: KafkaTable) -> Destination:
        """The topic as a destination."""
        return ChangeTopicDestination(checked)

    def pipeline_place(self, name: str, options: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
        """Options of one table, its topic taken from ``sink.tableId-to-topic.mapping`` where that tells it."""
        left = {key: value for key, value in options.items() if key != MAPPING}
        try:
            topic = topic_of(name, options.get(MAPPING, ""))
        except ValueError as error:
            return left, f"option '{MAPPING}' {error}"
        return {**left, **({"topic": topic} if topic is not None else {})}, None
