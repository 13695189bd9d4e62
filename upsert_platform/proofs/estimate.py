"""Rows that an edited insert changes, estimated on the lake alone: both inserts are computed over a sample of keys.

It is taken for granted that the table holds what the deployed insert makes of the changelog, so nothing of the table is
read: that would cost as much as all of its rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from upsert_platform.core.capabilities import StoresOtherValues
from upsert_platform.core.destination import OPERATION, OPERATION_UPSERT, SEQUENCE
from upsert_platform.core.model import Project
from upsert_platform.core.types import quote_name, spark_type
from upsert_platform.proofs.declared_changes import column_changes
from upsert_platform.sync.binding import QuerySource, Target
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.transform import computed, expressions_of
from upsert_platform.sync.verify import as_held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def deployed_target(target: Target, project: Project, deployed: Project | None) -> Target | None:
    """Return a table as it is deployed, if its rows can be computed from the changelog of the edited one.

    Args:
        target: as edited, of `project`.

    Returns:
        None where a query, a key, a type or the source is another one: then nothing but the table tells its rows.
    """
    name = target.table.name
    if deployed is None or isinstance(target.source, QuerySource) or name not in deployed.tables:
        return None
    inserts = [insert for insert in deployed.inserts if insert.target == name]
    source, before = target.insert.source, deployed.tables[name]
    if len(inserts) != 1 or inserts[0].query is not None or inserts[0].source != source:
        return None
    now, old = project.tables.get(source), deployed.tables.get(source)
    if now is None or old is None or column_changes(old, now) or now.primary_key != old.primary_key:
        return None
    types = {column.name: str(column.type) for column in before.columns}
    same = all(types.get(column.name, str(column.type)) == str(column.type) for column in target.table.columns)
    if not now.primary_key or not same or before.primary_key != target.table.primary_key:
        return None
    made, made_now = expressions_of(inserts[0], before), expressions_of(target.insert, target.table)
    if any(made[name] != made_now[name] for name in before.primary_key):
        return None
    return replace(target, table=before, insert=inserts[0])


def sampled_sides(
    spark: SparkSession, hop: DestinationHop, before: Target, sample: DataFrame, *, upto: int
) -> tuple[DataFrame, DataFrame]:
    """Return what the edited insert makes of a sample, as a change frame, and the rows of the deployed one.

    Args:
        before: of `deployed_target`.
        sample: of `DestinationHop.sample`.
    """
    from pyspark.sql import functions as F

    destination = hop.destination
    deployed = DestinationHop(before, hop.store, destination, refused=hop.refused, run=hop.run)
    changes = computed(deployed.changes_of_sample(spark, sample, upto=upto))
    there = set(changes.columns)
    made = [
        F.col(quote_name(column.name))
        if column.name in there
        else F.lit(None).cast(spark_type(column.type)).alias(column.name)
        for column in destination.columns
        if column.type is not None
    ]
    held = as_held(destination, changes.select(*made, OPERATION, SEQUENCE)).where(F.col(OPERATION) == OPERATION_UPSERT)
    if isinstance(destination, StoresOtherValues):
        names = [column.name for column in destination.columns]
        held = held.withColumns({name: destination.stored_value(name, F.col(quote_name(name))) for name in names})
    return as_held(destination, hop.changes_of_sample(spark, sample, upto=upto)), held
