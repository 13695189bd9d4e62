"""Rows of a frame that somebody else made: what `_op` and `_seq` say is checked, and one row is kept per stored key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.destination import OPERATION, OPERATION_DELETE, OPERATION_UPSERT, SEQUENCE
from upsert_platform.core.errors import RecordError
from upsert_platform.core.internal_columns import internal
from upsert_platform.maxcompute.names import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from upsert_platform.maxcompute.destination import MaxComputeDestination

_ORDERS: Final = ("tinyint", "smallint", "int", "bigint", "timestamp", "timestamp_ntz", "date")


def check_controls(frame: DataFrame) -> None:
    """Checks the columns that say what a row does.

    Raises:
        RecordError: an operation is neither `U` nor `D`; a sequence is null, or of a type that does not order rows.
    """
    from pyspark.sql import functions as F

    kinds = {item.name: item.dataType.simpleString() for item in frame.schema.fields}
    if OPERATION in kinds:
        _require(kinds, OPERATION, ("string",), f"'{OPERATION_UPSERT}' or '{OPERATION_DELETE}'")
        known = F.col(OPERATION).isin(OPERATION_UPSERT, OPERATION_DELETE)
        wrong = frame.where(~F.coalesce(known, F.lit(False)))
        found = wrong.agg(F.count(F.lit(1)), F.first(F.col(OPERATION), ignorenulls=True)).first()
        if found is not None and found[0]:
            raise RecordError(
                f"column '{OPERATION}' takes '{OPERATION_UPSERT}' (put the row) and '{OPERATION_DELETE}' (delete the"
                f" row of its key), and {found[0]} rows have something else, such as {found[1]!r}. Nothing was written"
            )
    if SEQUENCE in kinds:
        _require(kinds, SEQUENCE, _ORDERS, "whole numbers, moments or dates, which order rows; cast it to BIGINT")
        nulls = frame.where(F.col(SEQUENCE).isNull()).count()
        if nulls:
            raise RecordError(f"column '{SEQUENCE}' orders rows, and is null in {nulls} of them. Nothing was written")


def _require(kinds: dict[str, str], name: str, wanted: tuple[str, ...], takes: str) -> None:
    if kinds[name] not in wanted:
        raise RecordError(f"column '{name}' is of type {kinds[name]} and takes {takes}. Nothing was written")


def last_per_key(frame: DataFrame, destination: MaxComputeDestination) -> DataFrame:
    """The last row of each key, as the table stores it, by ``_seq``; without that no key may come twice.

    Raises:
        RecordError: of two different rows of a key nothing says which one counts.
    """
    from pyspark.sql import functions as F

    key = destination.primary_key
    stored = {internal(f"stored_{n}"): destination.stored_value(name, F.col(quote(name))) for n, name in enumerate(key)}
    ordered = SEQUENCE in frame.columns
    row, places = F.struct(*[F.col(quote(name)) for name in frame.columns]), list(stored)
    order = F.col(SEQUENCE) if ordered else F.lit(0)
    # Of a row that comes twice as it is one counts, where they are ordered: sources that repeat records do that.
    rows = F.count_distinct(F.to_json("row")) if ordered else F.count(F.lit(1))
    counted = (
        frame.select(row.alias("row"), order.alias("order"), *[column.alias(name) for name, column in stored.items()])
        .groupBy(*places, "order")
        .agg(F.first("row").alias("row"), rows.alias("rows"))
    )
    last = counted.groupBy(*places).agg(F.max_by(F.struct("row", "rows", "order"), F.col("order")).alias("last"))
    twice = last.where("last.rows > 1").limit(1).collect()
    if twice:
        raise RecordError(_says_twice(twice[0]["last"], key, ordered=ordered))
    return last.select("last.row.*")


def _says_twice(last: Any, key: tuple[str, ...], *, ordered: bool) -> str:
    shown = ", ".join(f"{name} = {last['row'][name]!r}" for name in key)
    if ordered:
        return f"the key {shown} has {last['rows']} different rows with '{SEQUENCE}' {last['order']}, its highest"
    return f"the key {shown} comes {last['rows']} times; add a column '{SEQUENCE}' that orders rows"
