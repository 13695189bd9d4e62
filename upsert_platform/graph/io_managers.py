"""IO managers: what an asset returns is a plan, writing it is what they do; what they load is a Spark DataFrame.

Annotations are evaluated here: Dagster does not understand a `ResourceDependency` that is text.
"""

from typing import TYPE_CHECKING, Any

import dagster as dg

from upsert_platform.changelog import compaction
from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.changelog.rows import KIND, KIND_DELETE, stored_columns
from upsert_platform.errors import ChangelogError
from upsert_platform.graph import metadata
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import TABLE_METADATA
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.hops.binding import changelog_of
from upsert_platform.hops.changelog_hop import ChangelogPlan, CommittedBatch
from upsert_platform.hops.destination_hop import DestinationHop
from upsert_platform.hops.query_hop import QueryHop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ChangelogIOManager(dg.ConfigurableIOManager):
    """Appends what a changelog plan found to the changelog, batch by batch; loads a changelog's snapshot."""

    platform: dg.ResourceDependency[PlatformResource]
    spark: dg.ResourceDependency[SparkResource]

    def handle_output(self, context: dg.OutputContext, obj: ChangelogPlan) -> None:
        """Reads and commits every batch of the plan."""
        with told_plainly():
            hop = self.platform.changelog_hop(_table_of(context), run=context.run_id)

        def tell(done: CommittedBatch) -> None:
            records = sum(account.records for account in done.accounts)
            told.extend(done.accounts)
            left = max(0, obj.lag - sum(account.offsets for account in told))
            context.log.info(f"batch {done.batch}: {records} records in {done.seconds:.1f} s, {left} offsets left")

        told: list[Any] = []
        self.spark.expect(obj.lag)
        with told_plainly():
            run = hop.execute(self.spark.spark_session, obj, progress=tell)
        context.add_output_metadata(metadata.of_changelog_run(run))
        if compaction.needs_merging(hop.store):
            context.log.info("merging small files of the changelog")
            try:
                compaction.merge_files(self.spark.spark_session, hop.store)
            except ChangelogError as error:  # what the run was for is done
                context.log.info(str(error))

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """The snapshot: the last value per key, without deleted keys, in declared columns."""
        assert context.upstream_output is not None
        with told_plainly():
            source = self.platform.binding().sources[_table_of(context.upstream_output)]
            store = changelog_of(source, self.platform.root)
            spark = self.spark.spark_session
            head = store.create()
        names = [column.name for column in stored_columns(source.table)]
        latest = latest_per_key(
            store.read(spark, after=0, upto=head.batch), key=source.table.primary_key, columns=names
        )
        return latest.where(f"{KIND} <> '{KIND_DELETE}'").select(*[f"`{name}`" for name in names])


class QueryIOManager(dg.ConfigurableIOManager):
    """Computes the batches that a query has not applied; loads its result."""

    platform: dg.ResourceDependency[PlatformResource]
    spark: dg.ResourceDependency[SparkResource]

    def handle_output(self, context: dg.OutputContext, obj: QueryHop) -> None:
        """Computes and commits every batch; Spark's session is opened when there is enough to do."""
        with told_plainly():
            run = obj.execute(lambda: self.spark.spark_session)
        context.add_output_metadata(metadata.of_query_run(run))

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """The rows of the result."""
        assert context.upstream_output is not None
        with told_plainly():
            hop = self.platform.query_hop(_table_of(context.upstream_output), run=context.upstream_output.run_id)
            return hop.result(self.spark.spark_session)


class DestinationIOManager(dg.ConfigurableIOManager):
    """Applies changelog batches to a destination table; loads the table."""

    platform: dg.ResourceDependency[PlatformResource]
    spark: dg.ResourceDependency[SparkResource]

    def handle_output(self, context: dg.OutputContext, obj: DestinationHop) -> None:
        """Applies every batch that is not applied yet."""
        try:
            with told_plainly():
                self.spark.expect(obj.rows_behind())
                run = obj.execute(self.spark.spark_session, tell=context.log.warning)
        finally:
            obj.destination.close()
        if run is None:
            context.log.info("another run applied these batches meanwhile")
            context.add_output_metadata({"batches_behind": 0, "batches": 0, "upserts": 0, "deletes": 0})
            return
        context.add_output_metadata(metadata.of_destination_run(run))
        if run.multi_partition_keys:
            context.log.warning(
                f"{run.multi_partition_keys} keys were met in more than one partition: of their last records in each"
                " the later batch won, and within a batch the later record time. Was the topic widened, or do producers"
                " partition differently?"
            )

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """All rows of the table, in declared types."""
        assert context.upstream_output is not None
        with told_plainly():
            destination = self.platform.destination(_table_of(context.upstream_output))
            try:
                return destination.read(self.spark.spark_session)
            finally:
                destination.close()


def _table_of(context: dg.OutputContext) -> str:
    found = (context.definition_metadata or {}).get(TABLE_METADATA)
    if found is None:
        raise dg.DagsterInvariantViolationError(f"asset {context.asset_key} has no metadata '{TABLE_METADATA}'")
    return str(getattr(found, "value", found))
