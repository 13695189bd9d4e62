"""Values of options that are one of a few words, or offsets of partitions."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator

_OFFSET_PAIR: Final = re.compile(r"\s*partition\s*:\s*(\d+)\s*,\s*offset\s*:\s*(\d+)\s*")


class StartupMode(StrEnum):
    """The start of the first batch of a table. Later batches go on from the committed position."""

    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"
    GROUP = "group-offsets"
    TIMESTAMP = "timestamp"
    SPECIFIC = "specific-offsets"


class BoundedMode(StrEnum):
    """The bound of a run; the next run continues from it if the bound has moved."""

    UNBOUNDED = "unbounded"
    LATEST = "latest-offset"
    GROUP = "group-offsets"
    TIMESTAMP = "timestamp"
    SPECIFIC = "specific-offsets"


class FieldsInclude(StrEnum):
    """The columns that the value contains."""

    ALL = "ALL"
    EXCEPT_KEY = "EXCEPT_KEY"


class OnError(StrEnum):
    """The handling of a record that cannot be decoded."""

    QUARANTINE = "quarantine"
    FAIL = "fail"


class KeyConflict(StrEnum):
    """The handling of a value whose copy of a key column differs from the key."""

    QUARANTINE = "quarantine"
    KEY = "key"


class OnDataLoss(StrEnum):
    """The handling of records that disappeared before they were read."""

    FAIL = "fail"
    CONTINUE = "continue"


class DeliveryGuarantee(StrEnum):
    """The delivery guarantee of a write."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class NamingStrategy(StrEnum):
    """The form of transactional ids."""

    INCREMENTING = "INCREMENTING"
    POOLING = "POOLING"


class StorageEngine(StrEnum):
    """The storage of a topic in ApsaraMQ for Kafka."""

    CLOUD = "cloud"
    LOCAL = "local"


class CleanupPolicy(StrEnum):
    """The retention of a created topic."""

    DELETE = "delete"
    COMPACT = "compact"


def parse_specific_offsets(value: object) -> object:
    """Reads ``partition:0,offset:42;partition:1,offset:300`` into pairs of partition and offset."""
    if not isinstance(value, str):
        return value
    pairs: dict[int, int] = {}
    items = [item for item in value.split(";") if item.strip()]
    for item in items:
        match = _OFFSET_PAIR.fullmatch(item)
        if match is None:
            raise ValueError(f"takes 'partition:0,offset:42;partition:1,offset:300', not '{value}'")
        if int(match[1]) in pairs:
            raise ValueError(f"names partition {match[1]} twice in '{value}'")
        pairs[int(match[1])] = int(match[2])
    if not pairs:
        raise ValueError(f"takes 'partition:0,offset:42;partition:1,offset:300', not '{value}'")
    return tuple(pairs.items())


SpecificOffsets = Annotated[tuple[tuple[int, int], ...], BeforeValidator(parse_specific_offsets)]
