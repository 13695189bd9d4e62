"""Calls of users' functions over Arrow batches, in tasks. Imports no module of the driver's."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow as pa

from upsert_platform.core.errors import RecordError
from upsert_platform.core.types import arrow_type
from upsert_platform.core.user_functions import SIGNATURE, STOPS, Signature, modules_beside
from upsert_platform.sql.arrow_batches import over_columns

_MOST: Final = 500
"""Characters of a reason."""
VALUE, REASON = "value", "reason"
"""Fields of what a call gives that sets rows aside."""


@dataclass(frozen=True)
class Batches:
    """A function over Arrow arrays, whose failures are found row by row.

    It can be pickled: the modules of the function's project go with it, which workers do not have, as they were before
    the function was called in this process, which may leave in them what cannot be pickled.

    Attributes:
        target: ``module.function``, for messages.
        arguments, result: Arrow types.
        stops: a row without a value stops the query; otherwise the result is a struct of value and reason.
    """

    function: Callable[..., Any] = field(compare=False)
    target: str
    arguments: tuple[pa.DataType, ...]
    result: pa.DataType
    stops: bool

    @classmethod
    def of(cls, name: str, target: str) -> tuple[Self, Signature]:
        """The calls of a function whose module is loaded, with its types.

        Args:
            name: by which Spark SQL calls it.
            target: ``module.function``.
        """
        module, _, attribute = target.rpartition(".")
        function = getattr(importlib.import_module(module), attribute)
        signature: Signature = getattr(function, SIGNATURE)
        kinds = tuple(arrow_type(kind) for kind in signature.arguments)
        return cls(function, target, kinds, arrow_type(signature.result), name.startswith(STOPS)), signature

    def __call__(self, *columns: pa.Array) -> pa.Array:
        """The values of rows."""
        _remember(self.function, self.target)
        given = [_cast(column, kind) for column, kind in zip(columns, self.arguments, strict=True)]
        parts = list(self._parts(given))
        values = pa.concat_arrays([values for values, _ in parts]) if parts else pa.array([], self.result)
        if self.stops:
            return values
        reasons = pa.concat_arrays([reasons for _, reasons in parts]) if parts else pa.array([], pa.string())
        return pa.StructArray.from_arrays([values, reasons], [VALUE, REASON])

    def of_columns(self, *columns: pa.ChunkedArray) -> pa.ChunkedArray:
        """As a call, of the columns of a table."""
        return over_columns(self, columns, self.arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        function = _remember(self.function, self.target) or _pickled(self.function, self.target)
        return _loaded, (function, self.target, self.arguments, self.result, self.stops)

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
                raise RecordError(
                    f"a function of the project has no value for a row of a query: {reason}. Have it return null for"
                    " such a row, and run again"
                ) from None
            yield pa.nulls(1, self.result), pa.array([reason])
            return
        yield values, pa.nulls(count, pa.string())


_REMEMBERED: Final[dict[str, tuple[Any, bytes]]] = {}
"""By ``module.function``: the function, and how it was pickled."""


def _remember(function: Any, target: str) -> bytes | None:
    """Pickles a function unless that was done, and returns it; None if it cannot be, and stays in this process.

    Others of its project are pickled with it: it may change what they share.
    """
    known = _REMEMBERED.get(target)
    if known is None or known[0] is not function:
        module = sys.modules.get(target.rpartition(".")[0])
        beside = [] if module is None else modules_beside(module)
        others = {f"{item.__name__}.{name}": value for item in beside for name, value in vars(item).items()}
        for name, value in {**others, target: function}.items():
            if name == target or (hasattr(value, SIGNATURE) and name not in _REMEMBERED):
                with suppress(Exception):  # whoever sends it to a worker is told why it cannot be
                    _REMEMBERED[name] = value, _pickled(value, target)
        known = _REMEMBERED.get(target)
    return known[1] if known is not None and known[0] is function else None


def _pickled(function: Any, target: str) -> bytes:
    from pyspark import cloudpickle

    module = sys.modules.get(target.rpartition(".")[0])
    for item in [] if module is None else modules_beside(module):
        cloudpickle.register_pickle_by_value(item)
    found: bytes = cloudpickle.dumps(function)
    return found


def _loaded(
    function: bytes, target: str, arguments: tuple[pa.DataType, ...], result: pa.DataType, stops: bool
) -> Batches:
    known = _REMEMBERED.get(target)
    if known is None or known[1] != function:
        known = _REMEMBERED[target] = pickle.loads(function), function
    return Batches(known[0], target, arguments, result, stops)


def _array(found: Any, kind: pa.DataType) -> pa.Array:
    array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    if not isinstance(array, pa.Array):
        raise TypeError(f"it returned {type(found).__name__}, not a pyarrow Array")
    return _cast(array, kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)
