"""A project under test: its topics are sent to, its jobs run in this process, its tables are read."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import dagster as dg

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.endpoint_resources import ENDPOINT_RESOURCES
from upsert_platform.graph.resources import PlatformResource
from upsert_platform.graph.translator import UpsertTranslator
from upsert_platform.sync.endpoints import ENDPOINT_VALUES
from upsert_platform.sync.send import EncodedRecords, make_topic, send_lines, written_table
from upsert_platform.sync.stand_ins import PLACES
from upsert_platform.testing.memory import MemorySystems
from upsert_platform.testing.platform import LastingSpark, holding
from upsert_platform.testing.topics import Headers, MemoryTopics, append_all

if TYPE_CHECKING:
    from upsert_platform.kafka.table import KafkaTable

LOCAL_ROWS: Final = 250_000
"""Rows up to which a run of a test needs no Spark."""
_NO_TIME: Final = 0
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        success: whether every step of it succeeded.
        checks: ``tables/orders:last_value_per_key`` to whether it passed.
        materialized: keys of the assets that it wrote, as text: ``tables/orders``.
        errors: step to the text of its error.
        metadata: asset to the metadata of its last materialisation.
    """

    success: bool
    checks: Mapping[str, bool] = field(default_factory=dict)
    materialized: tuple[str, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def check(self) -> Outcome:
        """This outcome.

        Raises:
            UpsertPlatformError: the run failed; it has the text of every error, and the checks that did not pass.
        """
        if self.success:
            return self
        told = [f"{step}: {text}" for step, text in self.errors.items()]
        told += [f"check {name} did not pass" for name, passed in self.checks.items() if not passed]
        raise UpsertPlatformError("the run failed\n" + "\n".join(told))


class ProjectUnderTest:
    """A project whose runs take place in the test's process; `project` opens one.

    Attributes:
        definitions: its Dagster definitions, with the assets of the test's own.
        instance: Dagster's instance that keeps its runs and events.
    """

    def __init__(
        self,
        platform: PlatformResource,
        *,
        systems: MemorySystems | None,
        assets: Sequence[Any],
        translator: UpsertTranslator | None,
        local_rows: int,
    ) -> None:
        self.platform = platform
        self.instance = dg.DagsterInstance.ephemeral()
        self._systems = systems
        self._spark = LastingSpark(local_rows=local_rows)
        own = build_definitions(
            platform.binding().project, platform=platform, spark=self._spark, translator=translator, alerts=False
        )
        self.definitions = dg.Definitions.merge(own, dg.Definitions(assets=list(assets))) if assets else own

    def send(self, table: str, rows: Iterable[Row]) -> None:
        """Sends a record per row to the topic of a declared table, in its formats; an upsert of the row's key.

        Args:
            rows: column to value; columns that are left out are null. Values are Python's: int, Decimal, str, datetime,
                date, bytes, list, dict.

        Raises:
            UpsertPlatformError: there is no such table, or a row is not one of it; the row's number and rule are named.
        """
        self._send(table, rows, deletes=False)

    def delete(self, table: str, keys: Iterable[Row]) -> None:
        """Sends a tombstone per row, of which the key columns count alone. Raises what `send` does."""
        self._send(table, keys, deletes=True)

    def send_record(
        self, table: str, *, key: bytes | None, value: bytes | None, headers: Headers = (), at: datetime | None = None
    ) -> None:
        """Sends a record as it is: one that its table cannot decode, say.

        Args:
            at: the record's time; now if left out.

        Raises:
            UpsertPlatformError: there is no such table.
        """
        target = written_table(self.platform.binding(), table, force=True)
        stamp = _NO_TIME if at is None else int(at.timestamp() * 1000)
        records = EncodedRecords([1], [(key, value)], [stamp], [list(headers)])  # type: ignore[list-item]
        if self._systems is not None:
            self._append(target, records)
            return
        make_topic(target)
        producer = target.endpoint.open_producer()
        producer.produce(target.settings.topic[0], value, key, timestamp=stamp, headers=list(headers))
        producer.flush(30)

    def put(self, table: str, rows: Iterable[Row]) -> None:
        """Puts rows into a table in which queries find rows (FOR SYSTEM_TIME AS OF), and which no insert writes.

        Raises:
            UpsertPlatformError: the table is none of those, the project runs on servers, or a row has other columns.
        """
        if self._systems is None:
            raise UpsertPlatformError("rows are put in memory alone: on servers, write the table with its own client")
        binding = self.platform.binding()
        if table not in binding.key_readers or table in binding.targets:
            known = ", ".join(name for name in binding.key_readers if name not in binding.targets) or "none"
            raise UpsertPlatformError(f"table '{table}' is not one in which queries find rows; those are: {known}")
        held = self._systems.table(binding.project.tables[table])
        names = [column.name for column in held.columns]
        for row in rows:
            unknown = sorted(set(row) - set(names))
            if unknown:
                raise UpsertPlatformError(f"table '{table}' has no column '{unknown[0]}'; it has {', '.join(names)}")
            held.put({name: row.get(name) for name in names})

    def sync(self, *, raise_on_error: bool = True) -> Outcome:
        """Runs job `sync`: topics to changelogs to queries to tables, with their checks.

        Raises:
            UpsertPlatformError: the run failed, unless `raise_on_error` is false.
        """
        return self.run("sync", raise_on_error=raise_on_error)

    def run(self, job: str, *, config: Mapping[str, Any] | None = None, raise_on_error: bool = True) -> Outcome:
        """Runs a job of the project.

        Args:
            config: run configuration.

        Raises:
            UpsertPlatformError: the run failed, unless `raise_on_error` is false.
        """
        found = self.definitions.resolve_job_def(job)
        done = found.execute_in_process(
            run_config=None if config is None else dict(config), instance=self.instance, raise_on_error=False
        )
        return self._ended(done, raise_on_error=raise_on_error)

    def materialize(self, *assets: Any, raise_on_error: bool = True) -> Outcome:
        """Materialises assets, such as those of the test's own that read a table; nothing before them.

        Args:
            assets: assets, keys, or keys as text: ``"tables/orders"``.

        Raises:
            UpsertPlatformError: the run failed, unless `raise_on_error` is false.
        """
        keys = [key for asset in assets for key in _keys(asset)]
        job = self.definitions.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=self.instance, asset_selection=keys, raise_on_error=False)
        return self._ended(done, raise_on_error=raise_on_error)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows that a destination table has now, by primary key; values are Python's.

        Raises:
            UpsertPlatformError: no insert writes such a table.
        """
        targets = self.platform.binding().targets
        if table not in targets:
            known = ", ".join(targets) or "none"
            raise UpsertPlatformError(f"no INSERT INTO writes table '{table}'; those that are written: {known}")
        if self._systems is not None:
            return self._systems.table(targets[table].table).in_order()
        with closing(targets[table].open()) as destination:
            frame = destination.read(self._spark.spark_session)
            found: list[dict[str, Any]] = frame.orderBy(*destination.primary_key).toArrow().to_pylist()
            return found

    def _send(self, table: str, rows: Iterable[Row], *, deletes: bool) -> None:
        target = written_table(self.platform.binding(), table)
        lines = [_text(row).encode() for row in rows]
        if self._systems is None:
            make_topic(target)
            sent = send_lines(target, lines, deletes=deletes)
        else:
            # First all are encoded, so that a refused row leaves nothing behind.
            kept: list[EncodedRecords] = []
            sent = send_lines(target, lines, deletes=deletes, take=kept.append)
            if not sent.refused:
                for records in kept:
                    self._append(target, records)
        if sent.refused or sent.undelivered:
            told = "\n".join(f"  row {number}: {reason}" for number, reason in sent.reasons)
            raise UpsertPlatformError(f"table '{table}': {sent.refused + sent.undelivered} rows were not sent\n{told}")

    def _append(self, target: KafkaTable, records: EncodedRecords) -> None:
        assert self._systems is not None
        topic = self._systems.topics.named(target.settings.topic[0])
        append_all(topic, records.pairs, timestamps=records.timestamps, headers=records.headers)

    def _ended(self, done: dg.ExecuteInProcessResult, *, raise_on_error: bool) -> Outcome:
        events = done.get_asset_materialization_events()
        shown = {
            event.asset_key.to_user_string(): {
                name: value.value for name, value in event.materialization.metadata.items()
            }
            for event in events
            if event.asset_key is not None
        }
        failed = [event for event in done.all_events if event.is_step_failure]
        outcome = Outcome(
            success=done.success,
            checks={
                f"{item.asset_key.to_user_string()}:{item.check_name}": item.passed
                for item in done.get_asset_check_evaluations()
            },
            materialized=tuple(shown),
            errors={str(event.step_key): _told(event) for event in failed},
            metadata=shown,
        )
        return outcome.check() if raise_on_error else outcome


@contextmanager
def project(
    path: str | os.PathLike[str],
    *,
    servers: Literal["memory", "local"] = "memory",
    assets: Sequence[Any] = (),
    variables: Mapping[str, str] | None = None,
    translator: UpsertTranslator | None = None,
    partitions: int = 1,
    local_rows: int = LOCAL_ROWS,
) -> Iterator[ProjectUnderTest]:
    """Opens a project folder for a test; what it sent and wrote is gone afterwards.

    Args:
        path: the folder with the declarations.
        servers: ``memory`` holds topics and tables in this process and needs no variable; ``local`` starts the servers
            of `upsert-platform local up` for this test, some ten seconds, and ends them.
        assets: assets of one's own, which read tables of the project.
        variables: values of ``${NAME}``; of others the environment's, and in memory any.
        translator: how assets are called.
        partitions: of topics in memory.
        local_rows: up to so many rows no Spark is needed; 0 sends every row through Spark.

    Raises:
        DeclarationError: the project cannot be used, or, in memory, holds a table that has no form there.
    """
    with tempfile.TemporaryDirectory(prefix="upsert-testing-") as home, _environment(variables or {}):
        more: dict[str, Any] = {"assets": assets, "translator": translator, "local_rows": local_rows}
        folder = str(Path(path).absolute())
        if servers == "memory":
            systems = MemorySystems(MemoryTopics(partitions))
            platform: PlatformResource = holding(systems)(project=folder, home=home, **_endpoints(PLACES))
            yield ProjectUnderTest(platform, systems=systems, **more)
        elif servers == "local":
            with _local_servers(Path(home)) as found:
                platform = PlatformResource(project=folder, home=home, **_endpoints(found))
                yield ProjectUnderTest(platform, systems=None, **more)
        else:
            raise UpsertPlatformError(f"servers is 'memory' or 'local', not '{servers}'")


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _local_servers(home: Path) -> Iterator[Mapping[str, Mapping[str, str]]]:
    """Values of the endpoints' resources, of servers that end with the context."""
    from upsert_platform.local import supervisor

    try:
        found = supervisor.up(home / "local")
        yield {
            name: {item.field: found[item.variable] for item in items if item.variable in found}
            for name, items in ENDPOINT_VALUES.items()
        }
    finally:
        supervisor.down(home / "local")


def _endpoints(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {item.endpoint_name: item(**values[item.endpoint_name]) for item in ENDPOINT_RESOURCES}


def _keys(asset: Any) -> list[dg.AssetKey]:
    if isinstance(asset, dg.AssetsDefinition):
        return list(asset.keys)
    return [dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else dg.AssetKey.from_coercible(asset)]


def _told(event: dg.DagsterEvent) -> str:
    failure = event.step_failure_data
    if failure.user_failure_data is not None and failure.user_failure_data.description:
        return failure.user_failure_data.description
    return failure.error.message.strip() if failure.error is not None else "it failed"


def _text(value: Any) -> str:
    """A value of a row as JSON: numbers keep their digits, times are ISO 8601, bytes Base64."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(str(name))}:{_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, (datetime, date, time)):
        return json.dumps(value.isoformat())
    if isinstance(value, (bytes, bytearray)):
        return json.dumps(base64.b64encode(value).decode())
    return json.dumps(value, ensure_ascii=False)
