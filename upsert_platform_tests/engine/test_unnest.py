"""UNNEST of arrays, maps and rows: loops over the elements are the model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.engine import reading, store, tasks
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.variables import Variables
from upsert_platform_tests.engine.test_merge import query_of
from upsert_platform_tests.engine.world import START, Kept, World, plan_query, same_rows
from upsert_platform_tests.sql.reading import read_scripts

DDL = """
CREATE TABLE boxes (id INT, tags ARRAY<STRING>, sizes MAP<STRING, INT>, parts ARRAY<ROW<name STRING, n INT>>,
  bag MULTISET<STRING>, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'boxes',
  'key.format' = 'json', 'value.format' = 'json', 'properties.bootstrap.servers' = 'b:1');
"""
Row = dict[str, Any]
Model = Callable[[Row], list[tuple[Any, ...]]]


def _tags(row: Row) -> list[tuple[Any, ...]]:
    return [(row["id"], tag) for tag in row["tags"] or []]


def _numbered(row: Row) -> list[tuple[Any, ...]]:
    return [(row["id"], tag, at) for at, tag in enumerate(row["tags"] or [], start=1)]


def _left(row: Row) -> list[tuple[Any, ...]]:
    return _numbered(row) or [(row["id"], None, None)]


def _sizes(row: Row) -> list[tuple[Any, ...]]:
    return [(row["id"], key, value) for key, value in (row["sizes"] or {}).items()]


def _parts(row: Row) -> list[tuple[Any, ...]]:
    return [(row["id"], *((part["name"], part["n"]) if part else (None, None))) for part in row["parts"] or []]


def _bag(row: Row) -> list[tuple[Any, ...]]:
    return [(row["id"], item) for item, count in (row["bag"] or {}).items() for _ in range(count)]


CASES: dict[str, tuple[str, Model]] = {
    "an array": ("SELECT b.id, t.tag FROM boxes AS b CROSS JOIN UNNEST(b.tags) AS t (tag)", _tags),
    "by a comma, with numbers": (
        "SELECT id, tag, pos FROM boxes, UNNEST(tags) WITH ORDINALITY AS t (tag, pos)", _numbered,
    ),
    "rows without elements": (
        "SELECT id, tag, pos FROM boxes LEFT JOIN UNNEST(tags) WITH ORDINALITY AS t (tag, pos) ON TRUE", _left,
    ),
    "a map": ("SELECT id, k, v FROM boxes CROSS JOIN UNNEST(sizes) AS t (k, v)", _sizes),
    "rows by the names of their fields": ("SELECT id, name, n FROM boxes CROSS JOIN UNNEST(parts) AS t", _parts),
    "rows by other names": ("SELECT id, a, b FROM boxes INNER JOIN UNNEST(parts) AS t (a, b) ON TRUE", _parts),
    "a multiset": ("SELECT id, item FROM boxes CROSS JOIN UNNEST(bag) AS t (item)", _bag),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUCKETS", 2)
    monkeypatch.setattr(reading, "_CHUNK", 3)
    monkeypatch.setattr(tasks, "_WAITING", 5)


class Boxes(World):
    """A world with a topic of collections."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.table = read_scripts({"boxes.sql": DDL}, Variables({}, {}, {}))[0].tables["boxes"]
        self.stores["boxes"] = ChangelogStore(str(self.folder / "changelogs" / "boxes"), self.table, mode="upsert")
        self.rows["boxes"], self.offsets["boxes"] = [], 0

    def fill(self, count: int) -> None:
        """A batch of rows and deletes."""
        rng, batch = self.rng, []
        for _ in range(count):
            row: Row = {"id": rng.randrange(8)}
            row["tags"] = rng.choice([None, [], [rng.choice(["a", "b", None]) for _ in range(rng.randrange(4))]])
            row["sizes"] = rng.choice([None, {}, {key: rng.choice([None, 1, 2]) for key in rng.sample("xyz", 2)}])
            part = {"name": "p", "n": rng.randrange(3)}
            row["parts"] = rng.choice([None, [], [rng.choice([None, part]) for _ in range(rng.randrange(3))]])
            row["bag"] = rng.choice([None, {key: rng.randrange(1, 3) for key in rng.sample("uvw", 2)}])
            self.rows["boxes"] = [item for item in self.rows["boxes"] if item["id"] != row["id"]]
            kind = rows.KIND_UPDATE_AFTER
            if rng.random() < 0.3:
                row, kind = dict.fromkeys(row) | {"id": row["id"]}, rows.KIND_DELETE
            else:
                self.rows["boxes"].append(row)
            system = {
                rows.KIND: kind, rows.TOPIC: "boxes", rows.PARTITION: 0, rows.OFFSET: self.offsets["boxes"],
                rows.ROW: 0, rows.TIMESTAMP: START,
            }  # fmt: skip
            self.offsets["boxes"] += 1
            maps = {name: list(row[name].items()) if row[name] is not None else None for name in ("sizes", "bag")}
            batch.append({**row, **maps, **system})
        self.write("boxes", batch)


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_given_per_element(name: str, tmp_path: Path) -> None:
    """Updates and deletes take back what the row had given."""
    sql, model = CASES[name]
    world = Boxes(tmp_path, random.Random(name))
    kept = Kept(world, plan_query(sql, more={"boxes": world.table}))
    for _ in range(4):
        world.fill(12)
        kept.advance()
        assert same_rows(kept.result(), [found for row in world.rows["boxes"] for found in model(row)])


def test_elements_are_grouped_and_joined(tmp_path: Path) -> None:
    sql = "SELECT tag, COUNT(*) AS n FROM boxes CROSS JOIN UNNEST(tags) AS t (tag) WHERE id > 2 GROUP BY tag"
    world = Boxes(tmp_path, random.Random(9))
    kept = Kept(world, plan_query(sql, more={"boxes": world.table}))
    for _ in range(3):
        world.fill(12)
        kept.advance()
        counts = Counter(tag for row in world.rows["boxes"] if row["id"] > 2 for tag in row["tags"] or [])
        assert same_rows(kept.result(), list(counts.items()))


@pytest.mark.parametrize(
    ("key", "select", "materialized"),
    [
        ("k, n", "id, pos, tag FROM boxes CROSS JOIN UNNEST(tags) WITH ORDINALITY AS t (tag, pos)", False),
        ("k, v", "id, v, k FROM boxes CROSS JOIN UNNEST(sizes) AS t (k, v)", True),
        ("k, s", "id, v, k FROM boxes CROSS JOIN UNNEST(sizes) AS t (k, v)", False),
    ],
)
def test_the_number_of_an_element_and_the_key_of_an_entry_tell_rows_apart(
    key: str, select: str, materialized: bool
) -> None:
    from upsert_platform.engine.explain import explain_plan

    columns = "k INT, n INT, s STRING" if key == "k, n" or "s" in key else "k INT, v INT, s STRING"
    target = f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = 'tablestore');"
    query = query_of(f"INSERT INTO t SELECT {select}", target=DDL + target)
    assert ("upsert-materialize" in "\n".join(explain_plan(query.plan))) is materialized


@pytest.mark.parametrize(
    ("join", "reason"),
    [
        ("CROSS JOIN UNNEST(id) AS t (x)", "UNNEST takes an ARRAY, MAP or MULTISET, not INT"),
        ("CROSS JOIN UNNEST(tags) AS t", r"name the columns of UNNEST: AS t \(element\)"),
        ("CROSS JOIN UNNEST(sizes) AS t (k)", "name the columns of UNNEST"),
        ("RIGHT JOIN UNNEST(tags) AS t (x) ON TRUE", "UNNEST stands in CROSS JOIN"),
        ("LEFT JOIN UNNEST(tags) AS t (x) ON x = 'a'", "UNNEST stands in CROSS JOIN"),
    ],
)
def test_other_forms_are_refused_by_name(join: str, reason: str) -> None:
    more = read_scripts({"boxes.sql": DDL}, Variables({}, {}, {}))[0].tables
    with pytest.raises(Fault, match=reason):
        plan_query(f"SELECT id FROM boxes {join}", more=more)
