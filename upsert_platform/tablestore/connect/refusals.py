"""Records that cannot be written, as text: whole, so that they can be reported and brought back."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

from upsert_platform.core.destination import RefusedRow
from upsert_platform.tablestore.connect.record import ConnectRecord
from upsert_platform.tablestore.connect.values import DirtyRecordError, UndecodableError

DIRTY: Final = DirtyRecordError.__name__
UNDECODABLE: Final = UndecodableError.__name__
REFUSED: Final = "ServiceError"
"""What kind of error a refused record met; the last when Tablestore itself does not take its row."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that was not written.

    Attributes:
        error: `DIRTY`, `UNDECODABLE` or `REFUSED`.
    """

    record: ConnectRecord
    error: str
    reason: str

    @property
    def information(self) -> str:
        """The text that the connector's reporters give (specification section 1.4)."""
        return f"Error: {self.error}, Message: {self.reason}"


def place_text(record: ConnectRecord) -> str:
    """Return the place of a record as JSON: the key of its rejected row."""
    return _json({"topic": record.topic, "partition": record.partition, "offset": record.offset})


def to_row(refused: RefusedRecord) -> RefusedRow:
    """The form that is kept in the lake: JSON with the coordinates, key and value (base64) and headers."""
    record = refused.record
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    whole: dict[str, Any] = {
        **place,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "error": refused.error,
    }
    if record.headers:
        whole["headers"] = [[name, _text(value)] for name, value in record.headers]
    return RefusedRow(key=place_text(record), row=_json(whole), reason=refused.reason)


def from_row(row: RefusedRow) -> RefusedRecord:
    """The inverse of to_row."""
    whole = json.loads(row.row)
    record = ConnectRecord(
        whole["topic"],
        whole["partition"],
        whole["offset"],
        _bytes(whole["key"]),
        _bytes(whole["value"]),
        whole["timestamp"],
        tuple((name, _bytes(value)) for name, value in whole.get("headers", ())),
    )
    return RefusedRecord(record, whole["error"], row.reason)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
