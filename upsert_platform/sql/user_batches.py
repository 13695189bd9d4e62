"""Calls of users' functions over Arrow batches, for Spark's workers. Imports no module of the driver's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

_MOST: Final = 500
"""Characters of a reason."""


@dataclass(frozen=True)
class Batches:
    """A function over Arrow arrays, whose failures are found row by row.

    Attributes:
        target: ``module.function``, for messages.
        arguments, result: Arrow types.
        stops: a row without a value stops the query; otherwise the result is a struct of value and reason.
    """

    function: Callable[..., Any]
    target: str
    arguments: tuple[pa.DataType, ...]
    result: pa.DataType
    stops: bool

    def __call__(self, *columns: pa.Array) -> pa.Array:
        """The values of rows."""
        given = [_cast(column, kind) for column, kind in zip(columns, self.arguments, strict=True)]
        parts = list(self._parts(given))
        values = pa.concat_arrays([values for values, _ in parts]) if parts else pa.array([], self.result)
        if self.stops:
            return values
        reasons = pa.concat_arrays([reasons for _, reasons in parts]) if parts else pa.array([], pa.string())
        return pa.StructArray.from_arrays([values, reasons], ["value", "reason"])

    def _parts(self, columns: Sequence[pa.Array]) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Values and reasons of rows, halved until each row that fails stands alone."""
        count = len(columns[0])
        if not count:
            return
        try:
            values = _array(self.function(*columns), self.result)
            if len(values) != count:
                raise ValueError(f"{len(values)} values for {count} rows")
        except Exception as error:  # noqa: BLE001 - what a user's function raises is the reason
            if count > 1:
                half = count // 2
                yield from self._parts([column[:half] for column in columns])
                yield from self._parts([column[half:] for column in columns])
                return
            reason = f"{self.target}: {type(error).__name__}: {error}"[:_MOST]
            if self.stops:
                raise RuntimeError(
                    f"a function of the project has no value for a row of a query: {reason}. Have it return null for"
                    " such a row, and run again"
                ) from None
            yield pa.nulls(1, self.result), pa.array([reason])
            return
        yield values, pa.nulls(count, pa.string())


def _array(found: Any, kind: pa.DataType) -> pa.Array:
    array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    if not isinstance(array, pa.Array):
        raise TypeError(f"it returned {type(found).__name__}, not a pyarrow Array")
    return _cast(array, kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)
