"""Before-images of a batch for destinations that return them: column `destination.BEFORE`.

Kept-up queries write a before-image (`-U`) beside every change of a row that was there (`engine/results.py`). It goes
through the insert's own expressions, as the row after it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from upsert_platform.changelog.rows import BATCH, KIND, KIND_UPDATE_AFTER, KIND_UPDATE_BEFORE, PARTITIONS_MET
from upsert_platform.core.destination import BEFORE, SEQUENCE
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.types import quote_name
from upsert_platform.writing.same_key import same_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def image_rows(changes: DataFrame, *, columns: Sequence[str]) -> DataFrame:
    """Before-images of one batch, as if they were what rows became: in the form of `latest.latest_per_key`."""
    from pyspark.sql import functions as F

    return changes.where(F.col(KIND) == KIND_UPDATE_BEFORE).select(
        *[F.col(quote_name(name)) for name in columns],
        F.lit(KIND_UPDATE_AFTER).alias(KIND),
        F.col(BATCH).alias(SEQUENCE),
        F.lit(1).alias(PARTITIONS_MET),
    )


def with_images(changes: DataFrame, images: DataFrame, *, columns: Sequence[str], key: Sequence[str]) -> DataFrame:
    """A change frame with the column `BEFORE`.

    Args:
        images: a change frame of `image_rows`.
        columns: of the destination.
        key: names of its primary key columns.
    """
    from pyspark.sql import functions as F

    whole = F.struct(*[F.col(quote_name(name)) for name in columns]).alias(BEFORE)
    names = [F.col(quote_name(name)).alias(internal(f"image_key{place}")) for place, name in enumerate(key)]
    told = images.select(*names, whole)
    same = same_key(
        [changes[quote_name(name)] for name in key], [told[internal(f"image_key{at}")] for at in range(len(key))]
    )
    joined = changes.join(told, same, "left")
    return joined.select(*[changes[quote_name(name)] for name in changes.columns], told[BEFORE])
