"""A declared `kafka-changes` table as a destination: every change of a key is a record, with the row before and after.

A batch gives one change per key. What a key held before is told by the query that the table is written from. With
`sink.delivery-guarantee` = exactly-once every batch is in the topic once; with at-least-once a write that was killed is
repeated, and readers that go by the key end with the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from upsert_platform.core.capabilities import TellsBefore
from upsert_platform.kafka.change_topic import read_as_changes
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.kafka.table import KafkaTable, read_kafka_table

if TYPE_CHECKING:
    from upsert_platform.kafka.topics import TopicInfo

_log = logging.getLogger(__name__)
_FOR_EVER: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}


class ChangeTopicDestination(KafkaDestination, TellsBefore):
    """As `KafkaDestination`, but for what its records are, and how the topic is kept."""

    def __init__(self, table: KafkaTable) -> None:
        super().__init__(table)
        found, problems = read_kafka_table(read_as_changes(table.table))
        assert found is not None, problems
        self.read_as = found

    @property
    def topic_config(self) -> Mapping[str, str]:
        """Return the configuration of a created topic: unlimited retention."""
        return _FOR_EVER

    def judge_topic(self, found: TopicInfo) -> None:
        """Warns of a topic that forgets changes."""
        if found.compacted:
            _log.warning(
                "table '%s': topic '%s' is compacted, so all but the last change of a key will be gone, and with them"
                " what readers need that sum changes up; set its cleanup.policy to delete",
                self.name,
                self.topic,
            )

    def writes_in_task(self) -> bool:
        """Never: the images before a change are joined by Spark."""
        return False
