"""The order of the rows of partitions: by columns, by arrival where these leave rows equal, and then by all columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.changelog.row_hashes import normal
from upsert_platform.core import plan as core_plan
from upsert_platform.core.plan import Order
from upsert_platform.engine.record_order import arrival_ranks

ARRIVED: Final = core_plan.ARRIVED.name
"""BIGINT: the batch of the query that brought a row."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The order of arrival as a part of an order, for rows that are only added.

    Attributes:
        records: per record that a row is made of its batch, time, topic, partition, offset and row number there.
        at: how many columns of the order decide before it.
        latest: the row that arrived last comes first.
    """

    records: Sequence[Sequence[str]]
    at: int
    latest: bool


def rows_in_order(
    table: pa.Table,
    partition: Sequence[str],
    partitions: np.ndarray,
    order: Sequence[Order],
    names: Sequence[str],
    arrival: Arrival | None,
) -> np.ndarray:
    """Positions of rows in order, the rows of each partition together.

    Args:
        partitions: the code of each row's partition, whose columns are `partition`.
        names: columns that decide where all else is equal.
    """
    columns: dict[str, pa.Array | pa.ChunkedArray] = {"partition": pa.array(partitions)}
    keys = [("partition", "ascending")]
    for at, item in enumerate(order):
        if arrival is not None and at == arrival.at:
            keys.append(("arrival", "ascending"))
        values = sortable(table.column(item.column))
        nulls = values.is_null().to_numpy(zero_copy_only=False).astype(np.int8)
        columns[f"n{at}"] = pa.array(-nulls if item.nulls_first else nulls)
        columns[f"o{at}"] = values
        keys += [(f"n{at}", "ascending"), (f"o{at}", "descending" if item.descending else "ascending")]
    if arrival is not None:
        equal = [*partition, *(item.column for item in order[: arrival.at])]
        columns["arrival"] = pa.array(_arrival_of_equals(table, equal, arrival))
        if arrival.at >= len(order):
            keys.append(("arrival", "ascending"))
    for at, name in enumerate(names):
        if name in table.column_names:
            columns[f"t{at}"] = sortable(table.column(name))
            keys.append((f"t{at}", "ascending"))
    return pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy()


def _arrival_of_equals(table: pa.Table, equal: Sequence[str], arrival: Arrival) -> np.ndarray:
    """Numbers in the order of arrival for rows that are equal in these columns."""
    codes = code_rows([table], [equal])[0] if equal else np.zeros(table.num_rows, dtype=np.int64)
    ranks = np.zeros(table.num_rows, dtype=np.int64)
    ties = np.bincount(codes)[codes] > 1 if len(codes) else np.zeros(0, dtype=bool)
    several = table.filter(pa.array(ties))
    arrived = ARRIVED if ARRIVED in table.column_names else None
    ranks[ties] = arrival_ranks(several, codes[ties], arrival.records, latest=arrival.latest, arrived=arrived)
    return ranks


def sortable(column: pa.ChunkedArray) -> pa.Array:
    """A column as Arrow orders it: NaN after every number, as in Java; booleans as numbers."""
    values = normal(column)
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.int64)
        # The bits of a double, turned so that they are ordered as the doubles are; NaN is the greatest.
        ordered = np.where(numbers < 0, np.int64(np.iinfo(np.int64).min) - numbers, numbers)
        return pa.array(ordered, mask=values.is_null().to_numpy(zero_copy_only=False))
    return values
