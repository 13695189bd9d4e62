"""Asset check `unchanged`: what the project, as the code location has it, changes in a table; its metadata is the plan.

Only for tables that ask for it by the option `check.plan`: it computes the insert over the lake, and reads the table.
Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import dagster as dg
from pydantic import Field

from upsert_platform.core.model import Table
from upsert_platform.core.platform_options import Severity, platform_settings
from upsert_platform.graph import keys
from upsert_platform.graph.checks import is_asked_for
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.jobs import PLAN
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.graph.standing import open_result, standing_result
from upsert_platform.proofs.plan import ProjectPlan, plan_project
from upsert_platform.proofs.plan_file import plan_data
from upsert_platform.sync.comparison import SHOWN_ROWS

_MARK: Final = "plan"
"""Metadata of a result that a plan was made for."""


class PlanConfig(dg.Config):
    """Run configuration of a plan."""

    estimate: bool = Field(False, description="Compare one key in 32 (in a large table fewer); estimate the counts.")
    deployed: str | None = Field(
        None,
        description="Folder of the project as it is deployed: differences of declarations count, too.",
    )
    examples: int = Field(SHOWN_ROWS, ge=0, description="Rows that differ in the metadata.")


def plan_check(target: Table, names: AssetKeys = AS_DECLARED) -> dg.AssetChecksDefinition:
    """Only in runs that ask for it: job `plan`, or the check by itself. Writes nothing."""
    key = names.destination_key(target.name)

    @dg.multi_asset_check(
        name=names.op_name("plan", target.name),
        specs=[
            dg.AssetCheckSpec(
                keys.CHECK_PLAN,
                asset=key,
                description="The project, as this code location has it, changes no row of the table. The metadata has"
                f" what it would change. Job `{names.named(PLAN)}` plans it, and so does an execution of this check"
                " alone.",
            )
        ],
        can_subset=True,
    )
    @names.bound
    def check(
        context: dg.AssetCheckExecutionContext, config: PlanConfig, platform: PlatformResource, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult]:
        if not is_asked_for(context.run):
            this = dg.AssetCheckKey(key, keys.CHECK_PLAN)
            told = f"not planned: execute this check alone, or job '{names.named(PLAN)}'"
            yield standing_result(context, this, mark=_MARK) or open_result(this, told)
            return
        with told_plainly():
            spark.refuse_wrong(platform)
            found = plan_project(
                spark.spark_session,
                platform.binding(),
                platform.lake,
                deployed=None if config.deployed is None else platform.located().at(Path(config.deployed)).load()[0],
                tables=[target.name],
                estimate=config.estimate,
                examples=config.examples,
                tell=context.log.info,
            )
        yield _result(target, found, names)

    return check


def _result(target: Table, found: ProjectPlan, names: AssetKeys) -> dg.AssetCheckResult:
    (planned,) = found.tables
    data = plan_data(found)
    (table,) = data["tables"]
    counts = {name: table[name] for name in ("added", "changed", "removed")}
    shown: dict[str, Any] = {
        "kind": table["kind"],
        **counts,
        "compared": table["compared"] or 0,
        "estimated": planned.estimated,
        "breaks": sum(bool(consumer.breaks) for consumer in planned.consumers),
        _MARK: dg.MetadataValue.json(data),
        "new": True,
    }
    if table["examples"]:
        shown["sample"] = dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in table["examples"]])
    about = "about " if planned.estimated else ""
    told = ", ".join(f"{about}{count} rows {name}" for name, count in counts.items())
    words = [told if planned.rows is not None else "", *planned.declared, planned.reason]
    words += [f"'{consumer.name}' breaks: {consumer.breaks}" for consumer in planned.consumers if consumer.breaks]
    fails = platform_settings(target).plan is Severity.ERROR
    remedy = f"; 'upsert-platform plan {target.name}' shows it, 'upsert-platform apply' carries it out"
    return dg.AssetCheckResult(
        check_name=keys.CHECK_PLAN,
        asset_key=names.destination_key(target.name),
        passed=not found.changes,
        severity=dg.AssetCheckSeverity.ERROR if fails else dg.AssetCheckSeverity.WARN,
        metadata=shown,
        description=f"{table['kind']}: {'; '.join(filter(None, words))}{remedy}" if found.changes else None,
    )
