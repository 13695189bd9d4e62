"""Columns whose values nobody is shown: what stands in the place of a value wherever one would be told.

Only what is shown is masked. Tables, topics and the lake hold every value as it is, or nothing could be replayed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from upsert_platform.core.destination import OPERATION, RefusedRow
from upsert_platform.core.model import Table
from upsert_platform.core.platform_options import platform_settings

MASKED: Final = "***"
_BESIDE: Final = ("topic", "partition", "offset", "timestamp", "error", OPERATION)
"""What a refused row tells beside its columns, or beside the bytes of its record."""
_SIDE: Final = re.compile(r"(key|value): ")


@dataclass(frozen=True, slots=True)
class Mask:
    """The masked columns of a table; false where there are none. Picklable: tasks have one.

    Attributes:
        columns: names of the masked ones.
        known: names of all columns, which are no secret.
    """

    columns: frozenset[str] = frozenset()
    known: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: Table) -> Mask:
        """Those that a table declares (``mask.columns``), and those made of masked columns (`Table.masked`)."""
        names = {*table.masked, *platform_settings(table).mask_columns}
        return cls(frozenset(names), tuple(column.name for column in table.columns)) if names else NO_MASK

    def __bool__(self) -> bool:
        return bool(self.columns)

    def value(self, column: str, shown: str) -> str:
        """The text of a value of a column."""
        return MASKED if column in self.columns else shown

    def object(self, text: str) -> str:
        """A row, or the key of one, as a JSON object: as `RefusedRow` has them."""
        if not self:
            return text
        try:
            found = json.loads(text)
        except ValueError:
            return MASKED
        if not isinstance(found, dict):
            return MASKED
        return json.dumps(self.mapping(found), ensure_ascii=False, separators=(",", ":"))

    def mapping(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row by the names of its columns; what is no column, and tells no place, is masked too."""
        if not self:
            return dict(row)
        return {name: value if self._is_shown(name) else MASKED for name, value in row.items()}

    def _is_shown(self, name: str) -> bool:
        return name not in self.columns and (name in self.known or name in _BESIDE)

    def reason(self, text: str) -> str:
        """Return the reason for which a record or row is kept aside; for a masked table only its column names, since it
        may quote values.
        """
        if not self:
            return text
        side = _SIDE.match(text)
        named = [name for name in self.known if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
        where = f"column{'s' if len(named) > 1 else ''} {', '.join(named)}: " if named else ""
        return f"{side[0] if side else ''}{where}{MASKED}"

    def told(self, row: RefusedRow) -> str:
        """A refused row in a message: its key, and why."""
        return f"{self.object(row.key)}: {self.reason(row.reason)}"

    def any_of(self, names: Sequence[str]) -> bool:
        """Return whether one of some columns is masked."""
        return not self.columns.isdisjoint(names)


NO_MASK: Final = Mask()
