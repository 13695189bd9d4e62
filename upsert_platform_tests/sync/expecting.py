"""A destination beside the rows that it should have: what a check needs of a hop, for tests of a destination alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.destination import Destination
from upsert_platform.core.model import Options, SourceLocation, Table
from upsert_platform.sync.verify import Comparison, check_everything

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNMASKED = Table("expected", (), (), Options({}), SourceLocation("test"))


def checked(
    spark: SparkSession, destination: Destination, expected: DataFrame, refused: RefusedStore, *, upto: int
) -> Comparison:
    """Compares a whole destination.

    Args:
        expected: the last change of every key, as a change frame.
        upto: the batch that was applied last; no other is behind it.
    """

    def changes(_: SparkSession, *, after: int, upto: int) -> DataFrame:
        assert after == 0
        return expected

    hop = SimpleNamespace(
        destination=destination,
        target=SimpleNamespace(table=UNMASKED, source=SimpleNamespace(table=UNMASKED), insert=None),
        refused=refused,
        changes=changes,
        changes_with_failures=changes,
        store=SimpleNamespace(head=lambda: None),
        arrow_insert=lambda **_: None,
    )
    return check_everything(spark, hop, upto=upto)  # type: ignore[arg-type]
