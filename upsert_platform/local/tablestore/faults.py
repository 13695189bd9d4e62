"""Faults on demand: what a real service and network do to a client, by rule instead of by chance.

A rule is text, ``kind:name=value,name=value``. Kinds: ``error`` (the whole request fails with a service error),
``row-error`` (rows of a batch fail), ``bad-gateway`` (502 with a body that is not protobuf), ``cut-before`` and
``cut-after`` (the connection is cut before or after the request was applied), ``delay`` and ``not-ready``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from upsert_platform.local.tablestore.errors import ServiceError, status_of

KINDS = ("error", "row-error", "bad-gateway", "cut-before", "cut-after", "delay", "not-ready")
_NAMES = ("code", "message", "operation", "table", "probability", "times", "skip", "rows", "seconds")


@dataclass(slots=True)
class Fault:
    """One rule.

    Attributes:
        operation: name of the operation that it strikes; all when empty.
        table: rows of this table only (``row-error``); all when empty.
        probability: of striking each time that it fits, from 0 to 1.
        times: strikes left; None is without end.
        skip: fitting requests (or rows) that pass before the first strike.
        rows: positions in the batch, from 0 (``row-error``); all when empty.
        seconds: how long (``delay``, ``not-ready``).
    """

    text: str
    kind: str
    code: str = "OTSServerBusy"
    message: str | None = None
    operation: str = ""
    table: str = ""
    probability: float = 1.0
    times: int | None = None
    skip: int = 0
    rows: frozenset[int] = frozenset()
    seconds: float = 0.0
    struck: int = 0

    def strikes(self, chance: random.Random) -> bool:
        """Return whether the rule strikes now; counts it."""
        if self.times is not None and self.times <= 0:
            return False
        if self.probability < 1 and chance.random() >= self.probability:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        self.struck += 1
        return True


def read_fault(text: str) -> Fault:
    """Reads a rule; ``ValueError`` says what is wrong with it."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise ValueError(f"fault '{text}': unknown kind '{kind}'; known: {', '.join(KINDS)}")
    fault = Fault(text, kind)
    for item in filter(None, rest.split(",")):
        name, _, value = item.partition("=")
        if name not in _NAMES:
            raise ValueError(f"fault '{text}': unknown parameter '{name}'; known: {', '.join(_NAMES)}")
        try:
            _set(fault, name, value)
        except ValueError as error:
            raise ValueError(f"fault '{text}': parameter '{name}': {error}") from None
    if kind in ("delay", "not-ready") and fault.seconds <= 0:
        raise ValueError(f"fault '{text}': '{kind}' needs seconds=<more than 0>")
    return fault


def _set(fault: Fault, name: str, value: str) -> None:
    match name:
        case "probability":
            fault.probability = float(value)
            if not 0 <= fault.probability <= 1:
                raise ValueError("must be from 0 to 1")
        case "times":
            fault.times = int(value)
        case "skip":
            fault.skip = int(value)
        case "rows":
            fault.rows = frozenset(int(part) for part in value.split("+"))
        case "seconds":
            fault.seconds = float(value)
        case "code":
            status_of(value)
            fault.code = value
        case "message":
            fault.message = value
        case "operation":
            fault.operation = value
        case "table":
            fault.table = value


class Faults:
    """The rules in force.

    Attributes:
        has_row_faults: whether any rule concerns rows of batches, so that the common case asks no further.
        not_ready_seconds: for how long a new table answers ``OTSTableNotReady``.
    """

    def __init__(self, texts: Iterable[str] = (), *, seed: int | None = None) -> None:
        self._chance = random.Random(seed)
        self.replace(texts)

    def replace(self, texts: Iterable[str]) -> None:
        """Puts these rules in place of the present ones; on ``ValueError`` nothing changes."""
        rules = [read_fault(text) for text in texts]
        self.rules = rules
        self._request_rules = [rule for rule in rules if rule.kind not in ("row-error", "not-ready")]
        self._row_rules = [rule for rule in rules if rule.kind == "row-error"]
        self.has_row_faults = bool(self._row_rules)
        self.not_ready_seconds = max((rule.seconds for rule in rules if rule.kind == "not-ready"), default=0.0)

    def strike(self, operation: str) -> list[Fault]:
        """The rules that strike a request."""
        return [
            rule for rule in self._request_rules if rule.operation in ("", operation) and rule.strikes(self._chance)
        ]

    def check_row(self, table: str, index: int) -> None:
        """Raises the error of the first rule that strikes a row of a batch."""
        for rule in self._row_rules:
            if rule.table not in ("", table) or (rule.rows and index not in rule.rows):
                continue
            if rule.strikes(self._chance):
                raise ServiceError(rule.code, rule.message)
