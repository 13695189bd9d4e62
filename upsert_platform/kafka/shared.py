"""Declared tables that would meet in one topic: what is wrong with them together, though each is right alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from upsert_platform.core.errors import Problem
from upsert_platform.kafka.modes import DeliveryGuarantee
from upsert_platform.kafka.options import UpsertKafkaSettings
from upsert_platform.kafka.sink.control import LEGACY_CONTROL_TOPIC, control_topic_name
from upsert_platform.kafka.table import KafkaTable


def cluster(servers: str) -> str:
    """Servers in one spelling, for comparing."""
    return ",".join(sorted(part.strip().lower() for part in servers.split(",") if part.strip()))


def reads_topic(table: KafkaTable, topic: str) -> bool:
    """Return whether a topic is among those of a table that is read."""
    settings = table.settings
    if settings.topic_pattern is None:
        return topic in settings.topic
    return bool(re.fullmatch(settings.topic_pattern, topic))


def meeting_problems(
    written: Iterable[KafkaTable], flows: Iterable[tuple[KafkaTable, KafkaTable]]
) -> Iterator[Problem]:
    """Yield the problems of tables that conflict with each other.

    Args:
        written: destinations.
        flows: pairs of a table that is read and the destination that it is written to.
    """
    sinks = [(table, table.settings) for table in written if isinstance(table.settings, UpsertKafkaSettings)]
    yield from _transactional_ids(sinks)
    yield from _control_topics(sinks)
    for source, target in flows:
        topic = target.settings.topic[0]
        if cluster(source.settings.bootstrap_servers) == cluster(target.settings.bootstrap_servers) and reads_topic(
            source, topic
        ):
            yield _problem(
                target,
                "topic",
                f"topic '{topic}' is read by table '{source.name}', from which it is written: every run would read what"
                " the run before wrote; write another topic, or let the pattern leave it out",
            )


def dead_letter_problems(
    name: str, topics: Iterable[tuple[str, str, str]], sources: Iterable[KafkaTable]
) -> Iterator[str]:
    """Topics for reports about failed records that are read as records again.

    Args:
        name: of the destination that reports.
        topics: option, servers and topic of each.

    Yields:
        A message each.
    """
    read = list(sources)
    for option, servers, topic in topics:
        for source in read:
            if cluster(source.settings.bootstrap_servers) == cluster(servers) and reads_topic(source, topic):
                yield (
                    f"table '{name}': '{option}' = '{topic}' is a topic that table '{source.name}' reads: reports about"
                    " failed records would be read as records; name another topic"
                )


def _transactional_ids(sinks: list[tuple[KafkaTable, UpsertKafkaSettings]]) -> Iterator[Problem]:
    first: dict[tuple[str, str], KafkaTable] = {}
    for table, settings in sinks:
        if settings.delivery_guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            continue
        other = first.setdefault((cluster(settings.bootstrap_servers), settings.transactional_id_prefix), table)
        if other is not table:
            yield _problem(
                table,
                "sink.transactional-id-prefix",
                f"'sink.transactional-id-prefix' = '{settings.transactional_id_prefix}' is that of table '{other.name}'"
                " too: their tasks would end each other's transactions; give each its own",
            )


def _control_topics(sinks: list[tuple[KafkaTable, UpsertKafkaSettings]]) -> Iterator[Problem]:
    controls = {(cluster(settings.bootstrap_servers), control_topic_name(settings)): table for table, settings in sinks}
    for table, settings in sinks:
        topic = settings.topic[0]
        owner = controls.get((cluster(settings.bootstrap_servers), topic))
        if owner is not None:
            yield _problem(
                table,
                "topic",
                f"topic '{topic}' is the control topic of table '{owner.name}' ('sink.control-topic'), which keeps"
                " positions and leases; write another topic",
            )
        elif topic == LEGACY_CONTROL_TOPIC:
            yield _problem(table, "topic", f"topic '{topic}' is the platform's own; write another topic")


def _problem(table: KafkaTable, option: str, message: str) -> Problem:
    place = table.table.options.location(option) or table.table.location
    return Problem(f"table '{table.name}': {message}", place)
