"""Runs a job of a user's code location in this process, recorded in its Dagster instance."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.graph import console, keys
from upsert_platform.graph.pending import Pending, pending
from upsert_platform.sync.located import LocatedProject

if TYPE_CHECKING:
    from dagster._core.definitions.reconstruct import ReconstructableRepository

    from upsert_platform.sync.looks import Asked, Look

_COUNTS: Final = ("records", "upserts", "deletes", "quarantined", "refused", "lag")
"""Metadata of a materialisation that a summary shows, in this order."""


class JobRunError(UpsertPlatformError):
    """A job cannot be run; the message names the job, the location and the remedy."""


@dataclass(frozen=True)
class AssetResult:
    """The result of a run for one asset.

    Attributes:
        asset: key of the asset, its parts joined by ``/``.
        counts: name to number, of `_COUNTS`; empty where the asset was not materialised.
        checks: name of a check to whether it passed; a warning counts as passed.
        reasons: name of a check that did not pass, or only warns, to what it says.
        failed: why the step of the asset failed; empty if it did not.
    """

    asset: str
    counts: Mapping[str, int] = field(default_factory=dict)
    checks: Mapping[str, bool] = field(default_factory=dict)
    failed: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobResult:
    """A finished run.

    Attributes:
        run: id of the run in the Dagster instance.
        success: whether all steps succeeded and no blocking check failed.
        assets: by key.
    """

    run: str
    success: bool
    assets: Sequence[AssetResult]

    @property
    def reasons(self) -> Mapping[str, str]:
        """Assets whose steps failed to the reason; those of one reason are joined by commas."""
        return console.joined_by_reason({item.asset: item.failed for item in self.assets if item.failed})


class CodeLocation:
    """A code location that is loaded in this process.

    Args:
        module: Python module with the `Definitions`.

    Raises:
        JobRunError: there is no such module, or it has no definitions.
    """

    def __init__(self, module: str) -> None:
        from dagster._core.code_pointer import CodePointer
        from dagster._core.definitions.reconstruct import ReconstructableRepository
        from dagster._core.errors import DagsterImportError

        self.module = module
        folder = str(Path.cwd())
        try:
            attribute, self._definitions = _definitions_of(module, folder)
        except (ImportError, dg.DagsterInvariantViolationError, DagsterImportError) as error:
            raise JobRunError(
                f"no code location in module '{module}': {error}. Name the module of your Definitions with --module, or"
                " run the command in the folder whose pyproject.toml declares it"
            ) from error
        self._repository: ReconstructableRepository = ReconstructableRepository(
            CodePointer.from_module(module, attribute, folder)
        )

    @property
    def definition(self) -> dg.RepositoryDefinition:
        """The location's jobs, assets and sensors."""
        if self._definitions is not None:
            return self._definitions.get_repository_def()
        return self._repository.get_definition()

    def projects(self) -> list[LocatedProject]:
        """Return the projects of the location: of its components, and of its own definitions.

        Raises:
            EndpointError: the options of a lake cannot be read.
        """
        from upsert_platform.graph.resources import PlatformResource

        resources = self.definition.get_top_level_resources()
        names = [name for name in resources if name.partition("_")[0] == keys.PLATFORM]
        suffixes = {name.removeprefix(keys.PLATFORM) for name in names}
        needed = {f"{name}{suffix}" for name in (keys.PLATFORM, *keys.ENDPOINTS, keys.LAKE) for suffix in suffixes}
        with dg.build_resources({name: item for name, item in resources.items() if name in needed}) as built:
            found = [getattr(built, name) for name in names]
            return [item.located() for item in found if isinstance(item, PlatformResource)]

    def jobs(self) -> list[str]:
        """Return the names of its jobs, sorted; without that of assets that Dagster adds."""
        return sorted(name for name in self.definition.job_names if not name.startswith("__"))

    def job(self, name: str) -> dg.JobDefinition:
        """Return a job by its name.

        Raises:
            JobRunError: the location has none of that name.
        """
        names = self.jobs()
        if name in names:
            return self.definition.get_job(name)
        raise JobRunError(f"'{self.module}' has no job '{name}'{_instead(name, names)} Its jobs: {', '.join(names)}")

    def jobs_of_projects(self, name: str) -> list[str]:
        """Return the jobs of a name: one where the location has one project, else one for each of its instances.

        Raises:
            JobRunError: the location has no such job.
        """
        names = set(self.jobs())
        suffixes = [text.removeprefix(keys.PLATFORM) for text in self.definition.get_top_level_resources()
                    if text.startswith(keys.PLATFORM)]  # fmt: skip
        found = [f"{name}{suffix}" for suffix in sorted(suffixes) if f"{name}{suffix}" in names]
        return found or [self.job(name).name]

    def assets_of_jobs(self, tables: Sequence[str], jobs: Sequence[str]) -> dict[str, list[dg.AssetKey]]:
        """Return the jobs that have the tables, with what those are made of and made into.

        Raises:
            JobRunError: no job has an asset of a table.
        """
        having: dict[str, list[str]] = {}
        for table in tables:
            refused: JobRunError | None = None
            for job in jobs:
                try:
                    self.assets_of([table], job=job)
                except JobRunError as error:
                    refused = error
                else:
                    having.setdefault(job, []).append(table)
            if refused is not None and not any(table in found for found in having.values()):
                raise refused
        return {job: self.assets_of(found, job=job) for job, found in having.items()}

    def assets_of(self, tables: Sequence[str], *, job: str) -> list[dg.AssetKey]:
        """Return the keys of what tables are made of and made into, as far as a job materialises it.

        Args:
            tables: names as declared, or asset keys with their parts joined by ``/``.

        Raises:
            JobRunError: the job has no asset of a table.
        """
        definition = self.job(job)
        layer = definition.asset_layer
        executable = set(layer.executable_asset_keys)
        named: dict[str, list[dg.AssetKey]] = {}
        declared = set[str]()
        for key in executable:
            named.setdefault(key.to_user_string(), []).append(key)
            table = layer.get(key).metadata.get(keys.TABLE_METADATA)
            if table is not None:
                declared.add(str(getattr(table, "value", table)))
                named.setdefault(str(getattr(table, "value", table)), []).append(key)
        unknown = [table for table in tables if table not in named]
        if unknown:
            raise JobRunError(
                f"job '{job}' has no table '{unknown[0]}'{_instead(unknown[0], sorted(named))} Its tables:"
                f" {', '.join(sorted(declared))}"
            )
        wanted = [key for table in tables for key in named[table]]
        graph = self.definition.asset_graph
        return sorted(dg.AssetSelection.assets(*wanted).upstream().resolve(graph) & executable)

    def run(
        self,
        job: str,
        *,
        instance: dg.DagsterInstance,
        config: Mapping[str, Any],
        assets: Sequence[dg.AssetKey] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> JobResult:
        """Run a job, as ``dagster job execute`` does, or the part of it that materialises some assets.

        Args:
            config: run configuration; what names no logger gets the console of the platform, where the job
                has it; the caller shows the reasons of the result.
            assets: all of the job if left out.

        Raises:
            JobRunError: the location has no such job, or the configuration does not fit it.
        """
        definition = self.job(job)
        logger = definition.loggers.get(console.CONSOLE)
        if logger is not None:
            config = {**(console.SUMMARISED if logger is console.console else console.RUN_CONFIG), **config}
        wanted = self._repository.get_reconstructable_job(job)
        if assets is not None:
            wanted = wanted.get_subset(
                asset_selection=set(assets), asset_check_selection=_checks_of(definition, set(assets))
            )
        try:
            with dg.execute_job(wanted, instance=instance, run_config=dict(config), tags=tags) as result:
                return _result_of(result)
        except dg.DagsterInvalidConfigError as error:
            raise JobRunError(f"job '{job}': the run configuration does not fit it: {error}") from error

    def pending(
        self,
        job: str,
        *,
        instance: dg.DagsterInstance,
        assets: Sequence[dg.AssetKey] | None = None,
        known: Mapping[Asked, Look] | None = None,
    ) -> Pending:
        """Ask what a run of a job, or of a part of it, would do and report; see `upsert_platform.graph.pending`.

        Args:
            known: looks that were made a moment ago.

        Raises:
            JobRunError: the location has no such job.
        """
        return pending(self.definition, self.job(job), instance=instance, assets=assets, known=known)

    def requests(self, job: str, *, instance: dg.DagsterInstance) -> Iterator[Sequence[dg.RunRequest] | None]:
        """Yield, at each look, what the location's sensor for a job asks for; None where no sensor asks for the job."""
        sensors = [item for item in self.definition.sensor_defs if job in _jobs_of(item)]
        if not sensors:
            while True:
                yield None
        cursor: str | None = None
        while True:
            context = dg.build_sensor_context(
                instance=instance,
                cursor=cursor,
                repository_def=self.definition,
                resources=self.definition.get_top_level_resources(),
            )
            with context:
                found = sensors[0].evaluate_tick(context)
            cursor = found.cursor or cursor
            yield [item for item in found.run_requests or () if item.job_name in (None, job)]


def _definitions_of(module: str, folder: str) -> tuple[str, dg.Definitions | None]:
    """Return the attribute of a module with its definitions, and these, if they are `Definitions`.

    Dagster's own search, and its way from what it finds to a repository, load Dagster's tools for tests, which nothing
    else needs. They are left to modules that do not have just one `Definitions`.
    """
    from dagster._core.code_pointer import load_python_module
    from dagster._core.workspace.autodiscovery import loadable_targets_from_loaded_module
    from dagster.components.definitions import LazyDefinitions

    loaded = load_python_module(module, folder)
    found = vars(loaded)
    given = {name: item for name, item in found.items() if isinstance(item, dg.Definitions)}
    if len(given) == 1 and not any(isinstance(item, LazyDefinitions) for item in found.values()):
        return next(iter(given.items()))
    return loadable_targets_from_loaded_module(loaded)[0].attribute, None


def _instead(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean '{near[0]}'?" if near else "."


def _checks_of(job: dg.JobDefinition, assets: set[dg.AssetKey]) -> set[dg.AssetCheckKey]:
    """Return the checks of some assets that the job itself has: others are costly, or look ahead."""
    found = (key for item in job.asset_layer.data for key in item.assets_def.check_keys)
    return {key for key in found if key.asset_key in assets}


def _jobs_of(sensor: dg.SensorDefinition) -> list[str]:
    return [target.job_name for target in sensor.targets]


@contextmanager
def current_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """Open the instance that DAGSTER_HOME names; without it the one that the UI and the demo use.

    Args:
        home: folder of that one.
    """
    os.environ.setdefault("DAGSTER_HOME", str(home))
    with dg.DagsterInstance.get() as instance:
        yield instance


def _result_of(result: dg.JobExecutionResult) -> JobResult:
    found: dict[str, AssetResult] = {}
    counts: dict[str, dict[str, int]] = {}
    checks: dict[str, dict[str, bool]] = {}
    reasons: dict[str, dict[str, str]] = {}
    for event in result.all_events:
        data: Any = event.event_specific_data
        if event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
            metadata = data.materialization.metadata
            numbers = {name: getattr(metadata[name], "value", None) for name in _COUNTS if name in metadata}
            counts[data.materialization.asset_key.to_user_string()] = {
                name: int(value) for name, value in numbers.items() if isinstance(value, (int, float))
            }
        elif event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            warns = data.severity is dg.AssetCheckSeverity.WARN
            checks.setdefault(data.asset_key.to_user_string(), {})[data.check_name] = data.passed or warns
            if not data.passed and data.description:
                reasons.setdefault(data.asset_key.to_user_string(), {})[data.check_name] = data.description
        elif event.event_type is dg.DagsterEventType.STEP_FAILURE:
            reason = console.failure_of(event)
            if reason:
                found[str(event.step_key)] = AssetResult(str(event.step_key), failed=reason)
    for name in dict.fromkeys((*counts, *checks)):
        found[name] = AssetResult(name, counts.get(name, {}), checks.get(name, {}), reasons=reasons.get(name, {}))
    return JobResult(result.run_id, result.success, list(found.values()))
