"""Rows of Python values to the Arrow batches that decoders return."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from upsert_platform.core.types import arrow_type
from upsert_platform.formats.base import Columns, Decoded


def schema_of(columns: Columns) -> pa.Schema:
    """Arrow schema of decoded rows."""
    return pa.schema([pa.field(name, arrow_type(logical)) for name, logical in columns])


def batch_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """A record batch of rows that hold Arrow-ready values."""
    if not rows:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decoded_rows(
    schema: pa.Schema, rows: Sequence[Sequence[Any]], message: Sequence[int], errors: dict[int, str]
) -> Decoded:
    """Decoded rows that were converted one by one."""
    return Decoded(batch_of(schema, rows), pa.array(message, pa.int32()), errors)


def join(schema: pa.Schema, parts: Sequence[tuple[pa.RecordBatch, pa.Array]], errors: dict[int, str]) -> Decoded:
    """Parts of a block, each with the message of its rows, put into the order of messages."""
    parts = [part for part in parts if part[0].num_rows]
    if not parts:
        return decoded_rows(schema, [], [], errors)
    if len(parts) == 1:
        return Decoded(parts[0][0], parts[0][1].cast(pa.int32()), errors)
    table = pa.Table.from_batches([part[0] for part in parts]).combine_chunks()
    message = pa.concat_arrays([part[1].cast(pa.int32()) for part in parts])
    rows = table.to_batches()[0]
    if all(left[1][-1].as_py() <= right[1][0].as_py() for left, right in itertools.pairwise(parts)):
        return Decoded(rows, message, errors)

    order = pa.array(np.argsort(message.to_numpy(), kind="stable"))
    return Decoded(rows.take(order), message.take(order), errors)
