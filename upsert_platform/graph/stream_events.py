"""Dagster events of continuous mode: a materialisation and a check result per interval, without a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_IS_USER_PROVIDED_TAG, DATA_VERSION_TAG

from upsert_platform.changelog.lake import Lake
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.model import Project
from upsert_platform.graph import keys, metadata
from upsert_platform.graph.freshness_check import metadata_of, severity_of
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.translator import translator_of
from upsert_platform.sync.binding import Binding, changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.streaming.reports import Report

Tell = Callable[[Sequence[Report]], None]


def asset_keys(project: Project) -> AssetKeys:
    """The keys that the environment's translator gives to the assets of a project.

    Raises:
        DeclarationError: the translator is not one, or answers what cannot be.
    """
    translator = translator_of(None)
    if translator is None:
        return AS_DECLARED
    from upsert_platform.graph.assets import project_translation

    return project_translation(project, translator).keys


@contextmanager
def reports_to_instance(
    run: str, names: Callable[[], AssetKeys | None], version: Callable[[Report], str | None]
) -> Iterator[Tell]:
    """Reports intervals to the instance that DAGSTER_HOME names.

    Args:
        version: gives the data version of what a report is of.
        run: name of the process, as commits have it.
        names: gives the keys of assets, of the declarations as they are now.
    """
    with dg.DagsterInstance.get() as instance:

        def tell(reports: Sequence[Report]) -> None:
            known = names() or AS_DECLARED
            for report in reports:
                for event in events_of(report, run=run, names=known, version=version(report)):
                    instance.report_runless_asset_event(event)

        yield tell


def version_of(report: Report, binding: Binding, lake: Lake) -> str | None:
    """Return the data version of what a report is of, as a run returns it; None while nobody can say.

    Args:
        binding: the declarations as they are now.
    """
    name = report.name
    try:
        if report.now.kind == "table" and name in binding.targets:
            head = changelog_of(binding.targets[name].source, lake).head()
            return None if head is None else f"{head.changelog_id}:{report.now.applied}"
        if report.now.kind == "query" and name in binding.queries:
            return metadata.data_version_of_query(binding.query_hop(name, lake, run="report").plan()).value
        if report.now.kind == "changelog" and name in binding.sources:
            source = binding.sources[name]
            plan = ChangelogHop(source, changelog_of(source, lake), run="report").plan()
            return metadata.data_version_of_changelog(plan).value
    except UpsertPlatformError:  # the report says by itself that the source does not answer
        return None
    return None


def events_of(
    report: Report, *, run: str, names: AssetKeys, version: str | None = None
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """The events of an interval: a materialisation if something was written, and the checks that took place."""
    given = {"changelog": names.changelog_key, "query": names.query_key, "table": names.destination_key}
    key = given[report.now.kind](report.name)
    if report.batches:
        # The tags by which Dagster knows a version that a run returns: automation follows it alike.
        tags = {} if version is None else {DATA_VERSION_TAG: version, DATA_VERSION_IS_USER_PROVIDED_TAG: "true"}
        yield dg.AssetMaterialization(key, description=report.line(), metadata=_metadata(report, run), tags=tags)
    if report.checked:
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=keys.CHECK_LAST_VALUE,
            passed=bool(report.now.passed),
            metadata={"compared": dg.MetadataValue.int(report.now.compared)},
            severity=dg.AssetCheckSeverity.ERROR,
            blocking=True,
            description=f"of the newest batches, in continuous mode ({run})",
        )
    if report.judged is not None:
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=keys.CHECK_FRESHNESS,
            passed=report.judged.passed,
            metadata=metadata_of(report.judged),
            severity=severity_of(report.judged),
            description=report.judged.text or None,
        )


def _metadata(report: Report, run: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "batch": report.now.applied,
        "batches": report.batches,
        "records": report.records,
        "records_per_second": round(report.records / report.seconds, 1),
        "lag": report.now.lag,
        "commit_seconds": round(report.commit_seconds, 3),
        "retries": report.retries,
        "stream": run,
    }
    if report.now.kind == "changelog":
        found["quarantined"] = report.quarantined
    if report.now.kind == "table":
        found["refused"] = report.refused
        for name, part in (("delay_p50", 0.5), ("delay_p95", 0.95), ("delay_p99", 0.99)):
            value = report.delays.quantile(part)
            found |= {} if value is None else {name: float(value)}
    return found
