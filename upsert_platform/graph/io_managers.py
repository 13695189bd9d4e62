"""IO managers: what an asset returns is a plan, writing it is what they do; what they load is a Spark DataFrame."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import dagster as dg

from upsert_platform.changelog import compaction
from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.rows import KIND, KIND_INSERT, KIND_UPDATE_AFTER, stored_columns
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.types import quote_name
from upsert_platform.graph import metadata
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AS_OF_METADATA, PLATFORM, SPARK, TABLE_METADATA, AssetKeys
from upsert_platform.graph.observed_progress import observing
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.proofs.as_of import moment_of
from upsert_platform.spark.pages import pages_of
from upsert_platform.sync.changelog_hop import ChangelogPlan, CommittedBatch
from upsert_platform.sync.destination_hop import DestinationPlan
from upsert_platform.sync.frame_hop import write_frame
from upsert_platform.sync.query_hop import QueryHop
from upsert_platform.sync.relations import AsOf, refuse_written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _PlatformIOManager(dg.IOManager):
    """Works with the resources of the run: those that its assets and checks are given, launched as they were.

    So it is no resource with others inside: those would keep the values of the definitions, whatever a run is given.
    """

    def __init__(self, platform: PlatformResource, spark: SparkResource) -> None:
        self.platform = platform
        self.spark = spark
        spark.serve(platform)


class ChangelogIOManager(_PlatformIOManager):
    """Appends what a changelog plan found to the changelog, batch by batch; loads a changelog's snapshot."""

    def __init__(self, platform: PlatformResource, spark: SparkResource, names: AssetKeys) -> None:
        super().__init__(platform, spark)
        self.names = names

    def handle_output(self, context: dg.OutputContext, obj: ChangelogPlan) -> None:
        """Reads and commits every batch of the plan."""
        with told_plainly():
            hop = self.platform.changelog_hop(_table_of(context), run=context.run_id)

        def tell(done: CommittedBatch) -> None:
            records = sum(account.records for account in done.accounts)
            told.extend(done.accounts)
            left = max(0, obj.lag - sum(account.offsets for account in told))
            context.log.info(f"batch {done.batch}: {records} records in {done.seconds:.1f} s, {left} offsets left")
            for moved in done.moved:
                context.log.warning(str(moved))

        told: list[Any] = []
        asked = self.spark.times_asked
        self.spark.expect(obj.lag)
        with told_plainly():
            self.spark.refuse_wrong(self.platform, writes=True)
            run = hop.execute(self.spark.on_demand(), obj, progress=tell, waiting=context.log.info)
            after = hop.plan()
        for warning in after.warnings:
            context.log.warning(warning)
        for topic in after.topics:
            key = self.names.stream_key(hop.source.table, topic.name)
            context.log_event(metadata.observed_topic(after, topic.name, key=key))
        shown = {**metadata.of_changelog_run(run, lag=after.lag), **after.details, **metadata.of_store(hop.store)}
        context.add_output_metadata(
            {**shown, **metadata.of_spark(self.spark.pages(since=asked), self.spark.take_work())}
        )
        if compaction.needs_merging(hop.store):
            context.log.info("merging small files of the changelog")
            try:
                rows = sum(item.rows or 0 for item in compaction.small_files(hop.store))
                if not (self.spark.on_demand().is_local(rows, 0) and compaction.merge_locally(hop.store)):
                    compaction.merge_files(self.spark.spark_session, hop.store)
            except ChangelogError as error:  # what the run was for is done
                context.log.info(str(error))

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """The snapshot: the last value per key, without deleted keys, in declared columns; without a key every row.

        As of the last batch, or of the moment that the input states.
        """
        from pyspark.sql import functions as F

        assert context.upstream_output is not None
        with told_plainly():
            self.spark.refuse_wrong(self.platform)
            source = self.platform.sound().sources[_table_of(context.upstream_output)]
            store = self.platform.changelog(source)
            spark = self.spark.spark_session
            head, moment = store.create(), _moment(context)
            upto = head.batch if moment is None else moment(store)
        names = [column.name for column in stored_columns(source.table)]
        found = store.read(spark, after=0, upto=upto)
        if source.table.primary_key:
            count = store.about_rows(upto=upto)
            found = latest_per_key(found, key=source.table.primary_key, columns=names, count=count)
        return found.where(F.col(KIND).isin(KIND_INSERT, KIND_UPDATE_AFTER)).select(*map(quote_name, names))


class QueryIOManager(_PlatformIOManager):
    """Computes the batches that a query has not applied; loads its result."""

    def handle_output(self, context: dg.OutputContext, obj: QueryHop) -> None:
        """Computes and commits every batch; see `SparkResource.local_rows`."""
        asked = self.spark.times_asked
        with told_plainly():
            self.spark.refuse_wrong(self.platform, writes=True)
            run = obj.execute(self.spark.on_demand())
        page = metadata.of_spark(self.spark.pages(since=asked), self.spark.take_work())
        context.add_output_metadata({**metadata.of_query_run(run), **metadata.of_store(obj.store), **page})
        if run.met:
            context.log.warning(
                f"{run.met} keys are given by more than one INSERT INTO the same table: the one whose row changed last"
                " counts, and within a batch the later statement"
            )
        if run.late:
            context.log.warning(
                f"{run.late} rows are left out: their windows were closed ('table.exec.emit.allow-lateness')"
            )

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """The rows of the result, as of its last batch, or of the moment that the input states."""
        assert context.upstream_output is not None
        with told_plainly():
            self.spark.refuse_wrong(self.platform)
            hop = self.platform.query_hop(_table_of(context.upstream_output), run=context.upstream_output.run_id)
            moment = _moment(context)
            upto = None if moment is None else moment(hop.store)
            return hop.result(self.spark.spark_session, upto=upto)


class DestinationIOManager(_PlatformIOManager):
    """Applies changelog batches to a destination table; loads the table."""

    def handle_output(self, context: dg.OutputContext, obj: "DestinationPlan | DataFrame") -> None:
        """Applies every batch that is not applied yet, or writes the rows of a DataFrame."""
        if not isinstance(obj, DestinationPlan):
            self._write_frame(context, obj)
            return
        asked = self.spark.times_asked
        with told_plainly():
            self.spark.refuse_wrong(self.platform, writes=True)
            hop = self.platform.destination_hop(_table_of(context), run=context.run_id)
            try:
                self.spark.expect(hop.rows_behind(obj))
                session = self.spark.on_demand()
                progress = observing(context, context.asset_key)
                run = hop.execute(session, obj, tell=context.log.warning, progress=progress)
            finally:
                hop.destination.close()
        if run is None:
            context.log.info("another run applied these batches meanwhile")
            context.add_output_metadata({"batches_behind": 0, "batches": 0})
            return
        page = metadata.of_spark(self.spark.pages(since=asked), self.spark.take_work())
        context.add_output_metadata({**metadata.of_destination_run(run), "dagster/uri": hop.destination.uri, **page})
        if run.multi_partition_keys:
            context.log.warning(
                f"{run.multi_partition_keys} keys were met in more than one partition: of their last records in each"
                " the later batch won, and within a batch the later record time. Was the topic widened, or do producers"
                " partition differently?"
            )

    def _write_frame(self, context: dg.OutputContext, frame: "DataFrame") -> None:
        with told_plainly():
            destination = self.platform.destination(_table_of(context))
            refused = RefusedStore(self.platform.lake.refused(destination.name))
            try:
                written = write_frame(
                    frame,
                    destination,
                    refused=refused,
                    run=context.run_id,
                    tell=context.log.warning,
                    progress=context.log.info,
                )
            finally:
                destination.close()
        page = metadata.of_spark(pages_of(frame.sparkSession), self.spark.take_work())
        context.add_output_metadata({**metadata.of_written_frame(written), **page})

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """All rows of the table, in declared types, as they are now."""
        assert context.upstream_output is not None
        with told_plainly():
            name = _table_of(context.upstream_output)
            if _moment(context) is not None:
                refuse_written(name)
            self.spark.refuse_wrong(self.platform)
            destination = self.platform.destination(name)
            try:
                return destination.read(self.spark.spark_session)
            finally:
                destination.close()


def changelog_io_manager(names: AssetKeys) -> dg.IOManagerDefinition:
    """The IO manager of changelogs, with the run's own resources.

    Args:
        names: keys of the assets of topics, of which it tells how far they are, and names of resources.
    """
    return _io_manager(
        names,
        lambda platform, spark: ChangelogIOManager(platform, spark, names),
        description="Writes and loads changelogs.",
    )


def query_io_manager(names: AssetKeys) -> dg.IOManagerDefinition:
    """The IO manager of queries, with the run's own resources."""
    return _io_manager(names, QueryIOManager, description="Computes and loads queries.")


def destination_io_manager(names: AssetKeys) -> dg.IOManagerDefinition:
    """The IO manager of destination tables, with the run's own resources."""
    return _io_manager(names, DestinationIOManager, description="Writes and loads destination tables.")


def _io_manager(
    names: AssetKeys, make: Callable[[PlatformResource, SparkResource], dg.IOManager], *, description: str
) -> dg.IOManagerDefinition:
    platform, spark = names.named(PLATFORM), names.named(SPARK)

    @dg.io_manager(
        required_resource_keys={platform, spark},
        description=description,
        input_config_schema={
            "as_of": dg.Field(
                dg.Noneable(str),
                default_value=None,
                description="Batch of the changelog or query, offsets (0:42,1:17) at which a batch ends, or a time, as"
                f" of which the input is read. Left out: what its metadata `{AS_OF_METADATA}` says, or else the last"
                " batch.",
            )
        },
    )
    def io_manager(context: dg.InitResourceContext) -> dg.IOManager:
        return make(getattr(context.resources, platform), getattr(context.resources, spark))

    return io_manager


def _moment(context: dg.InputContext) -> AsOf | None:
    """Return what finds the batch as of which an input is read; None of one that is read as it is now.

    Raises:
        TopicError: it states no batch, offsets or time.
    """
    stated = (context.config or {}).get("as_of")
    if stated is None:
        stated = (context.definition_metadata or {}).get(AS_OF_METADATA)
    return None if stated is None else moment_of(str(getattr(stated, "value", stated)))


def _table_of(context: dg.OutputContext) -> str:
    found = (context.definition_metadata or {}).get(TABLE_METADATA)
    if found is None:
        raise dg.DagsterInvariantViolationError(
            f"asset {context.asset_key} does not say which declared table it is: give it"
            f" metadata={{'{TABLE_METADATA}': '<name>'}}"
        )
    return str(getattr(found, "value", found))
