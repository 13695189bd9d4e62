"""The last rows of a sample of keys, drawn where files are read: only rows of the sample are exchanged and reduced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from upsert_platform.changelog import rows
from upsert_platform.changelog.change_rows import ChangesOfFiles
from upsert_platform.changelog.latest import latest_per_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.changelog.store import ChangelogStore


def latest_of_sample(
    spark: SparkSession,
    store: ChangelogStore,
    *,
    upto: int,
    columns: Sequence[str],
    one_in: int,
    ordered: bool = False,
) -> DataFrame:
    """Return the rows of `latest_per_key` up to a batch, of about one in `one_in` of the keys.

    Args:
        store: of a table with a primary key.
        columns: to keep; the key is among the result's columns in any case.
        ordered: see `latest_per_key`.
    """
    from pyspark.sql.types import StructType

    from upsert_platform.changelog.counting_rows import Drawn

    key, parallel = store.table.primary_key, spark.sparkContext.defaultParallelism
    names = tuple(dict.fromkeys([*key, *columns]))
    drawn = Drawn(after=upto, one_in=one_in)  # no batch is exempt from the sample
    read = ChangesOfFiles.of(store, columns=names, upto=upto, tasks=parallel, drawn=drawn)
    known = StructType.fromDDL(rows.spark_schema(store.table))
    given = dict.fromkeys([*names, rows.BATCH, rows.KIND, *rows.ORDER])
    schema = StructType([known[name] for name in given])
    if not read.shares:
        sampled = spark.createDataFrame([], schema)
    else:
        sampled = spark.range(0, len(read.shares), 1, len(read.shares)).mapInArrow(read, schema)
    count = store.about_rows(upto=upto) // one_in
    return latest_per_key(sampled, key=key, columns=names, ordered=ordered, count=count)
