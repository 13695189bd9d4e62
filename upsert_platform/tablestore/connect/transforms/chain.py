"""The transforms of a connector, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from upsert_platform.tablestore.connect.data import NOTHING
from upsert_platform.tablestore.connect.transforms.record import Part, SinkRecord, Transform
from upsert_platform.tablestore.connect.transforms.routing import HasHeaderKey, Predicate, RegexRouter, TopicNameMatches


@dataclass(frozen=True)
class Step:
    """A transform, and which records it concerns.

    Attributes:
        predicate: None for all records.
        negate: those for which the predicate does not hold.
    """

    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    def concerns(self, record: SinkRecord) -> bool:
        """Return whether the transform is applied to a record."""
        return self.predicate is None or self.predicate.holds(record) != self.negate


@dataclass(frozen=True)
class Chain:
    """Transforms in the order in which they are applied."""

    steps: tuple[Step, ...] = ()

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        """The record after all transforms; None when one of them drops it.

        Raises:
            UndecodableError: a transform would fail.
        """
        for step in self.steps:
            if step.concerns(record):
                changed = step.transform.apply(record)
                if changed is None:
                    return None
                record = changed
        return record

    @property
    def reads_keys(self) -> bool:
        """Return whether a transform works on keys."""
        return any(getattr(step.transform, "part", None) is Part.KEY for step in self.steps)

    @property
    def needs_headers(self) -> bool:
        """Return whether a predicate looks at headers."""
        return any(isinstance(step.predicate, HasHeaderKey) for step in self.steps)

    def route(self, topic: str) -> str:
        """The topic that records of a topic have after the transforms; see `routes_by_topic`."""
        record = SinkRecord(topic, 0, 0, None, NOTHING, NOTHING)
        for step in self.steps:
            if isinstance(step.transform, RegexRouter) and step.concerns(record):
                record = step.transform.apply(record)
        return record.topic

    @property
    def routes_by_topic(self) -> bool:
        """Return whether the topic alone decides where a record is routed to."""
        return all(
            step.predicate is None or isinstance(step.predicate, TopicNameMatches)
            for step in self.steps
            if isinstance(step.transform, RegexRouter)
        )


NO_TRANSFORMS: Final = Chain()
