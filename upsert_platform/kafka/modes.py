"""Values of options that are one of a few words."""

from __future__ import annotations

from enum import StrEnum


class StartupMode(StrEnum):
    """Where the first batch of a table starts. Later batches go on from the committed position."""

    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"
    GROUP = "group-offsets"
    TIMESTAMP = "timestamp"
    SPECIFIC = "specific-offsets"


class BoundedMode(StrEnum):
    """Where a run stops reading; the next one goes on from there, if the bound has moved."""

    UNBOUNDED = "unbounded"
    LATEST = "latest-offset"
    GROUP = "group-offsets"
    TIMESTAMP = "timestamp"
    SPECIFIC = "specific-offsets"


class FieldsInclude(StrEnum):
    """Which columns travel in the value."""

    ALL = "ALL"
    EXCEPT_KEY = "EXCEPT_KEY"


class OnError(StrEnum):
    """What happens to a record that cannot be decoded."""

    QUARANTINE = "quarantine"
    FAIL = "fail"


class KeyConflict(StrEnum):
    """What happens when the value's copy of a key column differs from the key."""

    QUARANTINE = "quarantine"
    KEY = "key"


class OnDataLoss(StrEnum):
    """What happens when records disappeared before they were read."""

    FAIL = "fail"
    CONTINUE = "continue"


class DeliveryGuarantee(StrEnum):
    """What a write promises."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class NamingStrategy(StrEnum):
    """How transactional ids are formed."""

    INCREMENTING = "INCREMENTING"
    POOLING = "POOLING"


class StorageEngine(StrEnum):
    """Where ApsaraMQ for Kafka keeps a topic."""

    CLOUD = "cloud"
    LOCAL = "local"


class CleanupPolicy(StrEnum):
    """What a created topic forgets."""

    DELETE = "delete"
    COMPACT = "compact"
