"""A plan as JSON: what `plan --json` prints and `apply` carries out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.proofs.plan import Kind, ProjectPlan, TablePlan
from upsert_platform.proofs.world import World

_WORDS = {"missing": "added", "extra": "removed", "stale": "changed"}


@dataclass(frozen=True)
class PlannedTable:
    """The part of a plan about one table, as far as it is carried out.

    Attributes:
        added, changed, removed: rows; None where they were not compared.
        rebuilds: queries that are computed anew, those that are read before those that read them.
    """

    table: str
    kind: Kind
    added: int | None
    changed: int | None
    removed: int | None
    rebuilds: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class PlanFile:
    """A plan that can be applied.

    Attributes:
        id: made of all of the plan, so that an edited one is noticed.
    """

    id: str
    world: World
    tables: tuple[PlannedTable, ...]
    estimated: bool = False

    @property
    def due(self) -> list[PlannedTable]:
        """Return the tables to write. Rows of a table that no insert writes any more stay."""
        return [item for item in self.tables if item.kind not in (Kind.SAME, Kind.GONE)]

    @property
    def run(self) -> str:
        """Return the name of the run that applies it, which the commits of the lake carry."""
        return f"apply-{self.id}"


def plan_data(plan: ProjectPlan) -> dict[str, Any]:
    """Return a plan as one JSON object."""
    found: dict[str, Any] = {
        "changes": plan.changes,
        "breaks": plan.breaks,
        "tables": [_table_data(item) for item in plan.tables],
        "world": plan.world.data(),
    }
    return {"id": _identity(found), **found}


def example_data(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row that differs, in the words of a plan."""
    return {**row, "status": _WORDS[row["status"]]}


def plan_of(data: object) -> PlanFile:
    """Return the plan of a JSON object.

    Raises:
        UpsertPlatformError: it is no plan, or was edited.
    """
    try:
        assert isinstance(data, dict)
        found = PlanFile(
            str(data["id"]),
            World.of(data["world"]),
            tuple(_planned(item) for item in data["tables"]),
            any(item["estimated"] for item in data["tables"]),
        )
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise UpsertPlatformError(
            "the file is no plan: give what 'upsert-platform plan --json' has printed, as it is"
        ) from error
    if found.id != _identity({name: value for name, value in data.items() if name != "id"}):
        raise UpsertPlatformError("the plan was edited after it was made: plan again, 'upsert-platform plan --json'")
    return found


def _identity(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


def _planned(data: Mapping[str, Any]) -> PlannedTable:
    compared = data["compared"] is not None
    added, changed, removed = (int(data[name]) if compared else None for name in ("added", "changed", "removed"))
    kind = Kind(data["kind"])
    return PlannedTable(data["table"], kind, added, changed, removed, tuple(data["rebuilds"]), data["reason"])


def _table_data(plan: TablePlan) -> dict[str, Any]:
    return {
        "table": plan.table,
        "kind": plan.kind.value,
        "declared": list(plan.declared),
        "added": plan.added,
        "changed": plan.changed,
        "removed": plan.removed,
        "columns": dict(plan.columns),
        "compared": None if plan.rows is None else plan.rows.compared,
        "estimated": plan.estimated,
        "one_in": plan.one_in,
        "rebuilds": list(plan.rebuilds),
        "reason": plan.reason,
        "command": plan.command,
        "cost": asdict(plan.cost),
        "consumers": [
            {**asdict(item), "reads": list(item.reads), "columns": list(item.columns)} for item in plan.consumers
        ],
        "examples": [example_data(row) for row in plan.rows.sample] if plan.rows else [],
    }
