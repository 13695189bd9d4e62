"""JSON that is logged in part: the steps from the document before an update to the one behind it.

A server of MySQL writes them with ``binlog_row_value_options`` = ``PARTIAL_JSON``. A step is an operation of one byte,
a path, and, unless it removes, a binary document; both have their length before them. How steps are carried out is
told in ``sql-common/json_diff.cc`` of the server, and where they stand in a row in ``sql/rpl_record.h``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.json_binary import JsonText, JsonTree, Node
from upsert_platform.mysql.binlog.packed import Reader

_REPLACE, _INSERT, _REMOVE = range(3)
_LEG: Final = re.compile(
    r"""\.(?P<quoted>"(?:[^"\\]|\\.)*")|\.(?P<name>[^\s.\[\]*"\\]+)|\[(?P<last>last)?(?:(?(last)-)(?P<index>\d+))?\]""",
    re.DOTALL,
)
_REMEDY: Final = "set 'binlog_row_value_options' = '', and take a new snapshot"


@dataclass(frozen=True, slots=True)
class _Cell:
    """An element of an array.

    Attributes:
        index: from its beginning, or from its end; 0 is the first, or the last.
    """

    index: int
    from_end: bool

    def place(self, length: int) -> int:
        """Return the index at which an element is inserted; an index beyond the array is its nearer end."""
        if self.from_end:
            return max(length - 1 - self.index, 0)
        return min(self.index, length)

    def within(self, length: int) -> bool:
        """Return whether an array has it."""
        return self.index < length


_Leg = str | _Cell


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """Carries out what an update tells of a document.

    Attributes:
        writer: of the column's documents.
    """

    writer: JsonText

    def write(self, before: bytes | None, steps: bytes) -> str:
        """The document behind an update, as text.

        Args:
            before: the document before it, in binary.
            steps: without the length that stands before them.

        Raises:
            ReplicationError: they do not fit the document, or are not of the layout.
        """
        if before is None:
            raise self._error("there is no document before it")
        tree = JsonTree(self.writer.column)
        root = tree.read(before)
        reader = Reader(steps, f"{self.writer.column}: JSON that is logged in part")
        while reader.left:
            operation = reader.number(1)
            legs = self._path(reader.take(reader.packed()))
            if operation == _REMOVE:
                value = None
            elif operation in (_REPLACE, _INSERT):
                value = tree.read(reader.take(reader.packed()))
            else:
                raise self._error(f"operation {operation} is not known")
            self._step(root, operation, legs, value)
        return self.writer.text(root)

    def _path(self, data: bytes) -> list[_Leg]:
        """The legs of a path as the server writes it: ``$.name."other name"[3][last-1]``, without wildcards."""
        try:
            text = data.decode("utf-8")
            at, legs = 1, list[_Leg]()
            while at < len(text):
                found = _LEG.match(text, at)
                if found is None or (found[0].startswith("[") and not (found["last"] or found["index"])):
                    raise self._error("its path is not one that is known")
                if found["quoted"] is not None:
                    legs.append(str(json.loads(found["quoted"], strict=False)))
                elif found["name"] is not None:
                    legs.append(found["name"])
                else:
                    legs.append(_Cell(int(found["index"] or 0), found["last"] is not None))
                at = found.end()
        except ValueError:
            raise self._error("its path is not text") from None
        if not text.startswith("$") or not legs:
            raise self._error("its path does not lead into the document")
        return legs

    def _step(self, root: Node, operation: int, legs: list[_Leg], value: Node | None) -> None:
        holder: Node = root
        for leg in legs[:-1]:
            holder = self._inner(holder, leg)
        leg = legs[-1]
        if operation == _INSERT:
            assert value is not None
            self._insert(holder, leg, value)
            return
        self._inner(holder, leg)
        if isinstance(holder, dict) and isinstance(leg, str):
            if value is None:
                del holder[leg]
            else:
                holder[leg] = value
        elif isinstance(holder, list) and isinstance(leg, _Cell):
            at = leg.place(len(holder))
            holder[at : at + 1] = [] if value is None else [value]

    def _inner(self, holder: Node, leg: _Leg) -> Node:
        """Return the node at a leg, which has to exist."""
        if isinstance(holder, dict) and isinstance(leg, str) and leg in holder:
            return holder[leg]
        if isinstance(holder, list) and isinstance(leg, _Cell) and leg.within(len(holder)):
            return holder[leg.place(len(holder))]
        raise self._error("its path leads to nothing in the document before it")

    def _insert(self, holder: Node, leg: _Leg, value: Node) -> None:
        if isinstance(holder, list) and isinstance(leg, _Cell):
            holder.insert(leg.place(len(holder)), value)
        elif isinstance(holder, dict) and isinstance(leg, str) and leg not in holder:
            # Members stand in the server's order: shorter names first, and those of a length by their bytes.
            members = sorted([*holder.items(), (leg, value)], key=lambda item: _order(item[0]))
            holder.clear()
            holder.update(members)
        else:
            raise self._error("it adds what is there, or adds it to what holds no such value")

    def _error(self, told: str) -> ReplicationError:
        return ReplicationError(f"{self.writer.column}: JSON that is logged in part cannot be read: {told}; {_REMEDY}")


def _order(name: str) -> tuple[int, bytes]:
    data = name.encode("utf-8")
    return len(data), data
