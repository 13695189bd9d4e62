"""Delta tables of MaxCompute: observed and read as sources, compacted by a job."""

from __future__ import annotations

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from upsert_platform.core.errors import DeclarationError
from upsert_platform.graph import keys
from upsert_platform.graph.delta_tables import changes_of, delta_source_assets, major_compact_job
from upsert_platform.graph.translator import Translation
from upsert_platform.sync.binding import load
from upsert_platform_tests.graph.stack import Stack

LEDGER = """
CREATE TABLE ledger (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'maxcompute', 'table.name' = '{table}_ledger', 'sink.operation' = 'upsert',
  'odps.end.point' = '${{UPSERT_MAXCOMPUTE_ENDPOINT}}', 'odps.project.name' = '${{UPSERT_MAXCOMPUTE_PROJECT}}',
  'odps.access.id' = '${{UPSERT_MAXCOMPUTE_ACCESS_ID}}', 'odps.access.key' = '${{UPSERT_MAXCOMPUTE_ACCESS_KEY}}'
);
"""


def test_a_table_that_others_write_is_a_source_and_ours_are_compacted(stack: Stack, spark: SparkSession) -> None:
    from odps import ODPS

    stack.declare(serving=None)
    (stack.project / "ledger.sql").write_text(LEDGER.format(table=stack.table))
    project, problems = load(stack.project, root=str(stack.lake))
    assert problems == []
    (ledger,) = delta_source_assets(project, Translation())
    assert ledger.key == keys.source_key("ledger")
    client = ODPS(
        stack.variables["UPSERT_MAXCOMPUTE_ACCESS_ID"],
        stack.variables["UPSERT_MAXCOMPUTE_ACCESS_KEY"],
        stack.variables["UPSERT_MAXCOMPUTE_PROJECT"],
        endpoint=stack.variables["UPSERT_MAXCOMPUTE_ENDPOINT"],
    )
    client.execute_sql(
        f"CREATE TABLE {stack.table}_ledger (id BIGINT NOT NULL, v STRING, PRIMARY KEY (id))"
        " TBLPROPERTIES ('transactional'='true', 'acid.cdc.mode.enable'='true', 'write.bucket.num'='4')"
    )
    client.execute_sql(f"INSERT INTO {stack.table}_ledger VALUES (1, 'a')")
    platform = stack.platform()
    instance = dg.DagsterInstance.ephemeral()
    observing = dg.Definitions(
        assets=[ledger],
        jobs=[dg.define_asset_job("observe", selection=[ledger.key])],
        resources={"platform": platform},
    )
    assert observing.resolve_job_def("observe").execute_in_process(instance=instance).success
    record = instance.get_latest_data_version_record(ledger.key)
    assert record is not None
    observed = record.event_log_entry.asset_observation
    assert observed is not None
    assert observed.metadata["table_version"].value == 2
    assert observed.metadata["keeps_changes"].value is True
    changes, version = changes_of(platform, spark, "ledger", after=1)
    assert changes.select("id", "v", "_change").collect() == [(1, "a", "insert")]
    assert version == 2
    with pytest.raises(DeclarationError, match="'users' is not a declared MaxCompute table"):
        changes_of(platform, spark, "users", after=0)
    destination = platform.destination("users_warehouse")
    destination.prepare()
    destination.close()
    job = major_compact_job(project)
    assert job is not None
    assert job.execute_in_process(resources={"platform": platform}).success
