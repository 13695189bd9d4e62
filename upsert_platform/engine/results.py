"""The last step of a query: signed rows to changelog rows, a before-image beside every change of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog import rows
from upsert_platform.changelog.row_codes import code_rows, last_positions
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.plan import Field
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.keys import consolidate, is_member
from upsert_platform.engine.steps import WEIGHT


@dataclass(frozen=True)
class Result:
    """The result table of a query.

    Attributes:
        name: of the query; shown as the topic of its rows.
        key: columns that tell rows apart; empty for a result that is only added to, or whose rows count by themselves.
        forgets: the query lets go of idle state: of several rows of one key, some of which it no longer knows to have
            shown, the last one counts.
    """

    name: str
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    forgets: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The schema of its files: that of a changelog (`changelog.rows`) with these columns."""
        system = rows.system_schema()
        return pa.schema([*system, *(pa.field(field.name, arrow_type(field.type)) for field in self.fields)])

    def changes(self, table: pa.Table, *, batch: int) -> pa.Table:
        """Changelog rows of signed rows, all of a key at once.

        Raises:
            ChangelogError: two rows of one key would be there: the key is not one.
        """
        names = [field.name for field in self.fields]
        signed = consolidate(table.select([*names, WEIGHT]), weight=WEIGHT)
        weights = signed.column(WEIGHT).to_numpy()
        if self.key:
            return self._keyed(signed, weights, batch)
        copies = np.repeat(np.arange(len(weights)), np.abs(weights))
        signs = np.sign(weights)[copies]
        taken = signed.take(pa.array(copies))
        kinds = pa.array(np.where(signs > 0, rows.KIND_INSERT, rows.KIND_UPDATE_BEFORE))
        return self._complete(taken, kinds, np.arange(len(copies)), batch)

    def _keyed(self, signed: pa.Table, weights: np.ndarray, batch: int) -> pa.Table:
        if not len(weights):
            return self.schema.empty_table()
        if self.forgets:
            signed = _last_of_each(signed, self.key)
            weights = signed.column(WEIGHT).to_numpy()
        (codes,) = code_rows([signed], [self.key])
        olds, news = weights < 0, weights > 0
        if (
            np.abs(weights).max() > 1
            or len(np.unique(codes[olds])) < olds.sum()
            or len(np.unique(codes[news])) < news.sum()
        ):
            raise ChangelogError(
                f"query '{self.name}' has several rows of one key ({', '.join(self.key)}), which it declares unique"
            )
        before, after = signed.filter(pa.array(olds)), signed.filter(pa.array(news))
        leaving = ~is_member(codes[olds], codes[news])
        deletes = before.filter(pa.array(leaving))
        for at, field in enumerate(self.fields):
            if field.name not in self.key:
                nulls = pa.nulls(deletes.num_rows, deletes.schema.field(at).type)
                deletes = deletes.set_column(at, field.name, nulls)
        parts = (
            (before, rows.KIND_UPDATE_BEFORE, 0),
            (after, rows.KIND_UPDATE_AFTER, 1),
            (deletes, rows.KIND_DELETE, 1),
        )
        return pa.concat_tables(
            [
                self._complete(part, pa.repeat(pa.scalar(kind), part.num_rows), np.full(part.num_rows, place), batch)
                for part, kind, place in parts
                if part.num_rows
            ]
        )

    def _complete(self, table: pa.Table, kinds: Any, offsets: np.ndarray, batch: int) -> pa.Table:
        count = table.num_rows
        given: dict[str, Any] = {
            rows.BATCH: pa.repeat(pa.scalar(batch, pa.int64()), count),
            rows.KIND: kinds,
            rows.TOPIC: pa.repeat(pa.scalar(self.name), count),
            rows.PARTITION: pa.repeat(pa.scalar(0, pa.int32()), count),
            # Of two rows of a key, readers take the later: the before-image stands first.
            rows.OFFSET: pa.array(offsets.astype(np.int64)),
            rows.ROW: pa.repeat(pa.scalar(0, pa.int32()), count),
        }
        columns = [
            given[field.name]
            if field.name in given
            else pa.nulls(count, field.type)
            if field.name not in table.column_names
            else pc.cast(table.column(field.name), field.type)
            for field in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)


def _last_of_each(signed: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """One row at most per key and sign, with weight -1 or 1."""
    signs = pa.array(np.sign(signed.column(WEIGHT).to_numpy()))
    signed = signed.set_column(signed.schema.get_field_index(WEIGHT), WEIGHT, signs)
    (codes,) = code_rows([signed], [[*key, WEIGHT]])
    return signed.take(pa.array(last_positions(codes)))
