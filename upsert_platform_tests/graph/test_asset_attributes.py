"""Attributes of assets that follow from declarations: owners, code versions, freshness policies, references, names."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.declared import in_lines
from upsert_platform.graph.project_component import UpsertProjectComponent
from upsert_platform.sync.binding import load

SQL = """
CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = 'one:9092',
  'properties.ssl.truststore.password' = 'SECRET-1', 'key.format' = 'json', 'value.format' = 'json',
  'owners' = 'ann@example.org, team:sales', 'freshness.max-age' = '2 h');
CREATE TABLE copies (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = 'http://one:1', 'tablestore.instance.name' = 'i',
  'tablestore.access.key.id' = 'k', 'tablestore.access.key.secret' = 'SECRET-2',
  'freshness.max-age' = '1 d', 'freshness.warn-age' = '6 h');
CREATE TABLE totals (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = 'http://one:1', 'tablestore.instance.name' = 'i',
  'tablestore.access.key.id' = 'k', 'tablestore.access.key.secret' = 'SECRET-2');
CREATE TABLE ledger (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'maxcompute', 'table.name' = 'ledger', 'sink.operation' = 'upsert', 'odps.end.point' = 'http://one:1',
  'odps.project.name' = 'p', 'odps.access.id' = 'i', 'odps.access.key' = 'k', 'owners' = 'team:books');
INSERT INTO copies SELECT * FROM users;
INSERT INTO totals SELECT name, COUNT(*) FROM users GROUP BY name;
"""
USERS, COPIES = "changelogs/users", "tables/copies"
TOTALS, QUERY = "tables/totals", "queries/totals"


def definitions(folder: Path, *changes: tuple[str, str], automation: str = "sensor") -> dg.Definitions:
    """The definitions of the declarations above, with parts of their text replaced."""
    text = SQL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "tables.sql").write_text(text, "utf-8")
    project, problems = load(folder)
    assert not problems, problems
    return build_definitions(project, automation=automation)


def node_of(found: dg.Definitions, key: str) -> dg.AssetSpec:
    return found.resolve_assets_def(dg.AssetKey(key.split("/"))).get_asset_spec(dg.AssetKey(key.split("/")))


@pytest.mark.parametrize("automation", ["sensor", "conditions"])
def test_topics_and_tables_of_others_show_the_owners_of_their_declaration(tmp_path: Path, automation: str) -> None:
    found = definitions(tmp_path, automation=automation)
    graph = found.resolve_asset_graph()
    for key, owners in (("topics/users", ["ann@example.org", "team:sales"]), ("sources/ledger", ["team:books"])):
        node = graph.get(dg.AssetKey(key.split("/")))
        assert list(node.owners) == owners
        assert node.is_observable
        assert not node.is_materializable
    assert (graph.get(dg.AssetKey(["topics", "users"])).automation_condition is not None) == (
        automation == "conditions"
    )


def code_versions(found: dg.Definitions) -> dict[str, str | None]:
    return {key: node_of(found, key).code_version for key in (USERS, QUERY, TOTALS, COPIES)}


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("'one:9092'", "'two:9092'", set()),
        ("SECRET-1", "OTHER", set()),
        ("SECRET-2", "OTHER", set()),
        ("'http://one:1'", "'http://two:1'", set()),
        ("team:sales", "team:others", set()),
        ("'2 h'", "'3 h'", set()),
        ("'topic' = 'users'", "'topic' = 'people'", {USERS}),
        ("'value.format' = 'json'", "'value.format' = 'json', 'value.json.ignore-parse-errors' = 'true'", {USERS}),
        ("GROUP BY name", "WHERE id > 1 GROUP BY name", {QUERY, TOTALS}),
        ("INSERT INTO copies SELECT *", "INSERT INTO copies SELECT id, UPPER(name)", {COPIES}),
        ("INSERT INTO copies SELECT * FROM users", "INSERT INTO copies SELECT * FROM users WHERE id > 1", {COPIES}),
        ("INSERT INTO copies SELECT *", "INSERT INTO copies  SELECT id, name", set()),
    ],
)
def test_a_code_version_is_the_fingerprint_of_a_declaration(
    tmp_path: Path, old: str, new: str, changed: set[str]
) -> None:
    before, after = code_versions(definitions(tmp_path)), code_versions(definitions(tmp_path, (old, new)))
    assert all(before.values())
    assert {key for key in before if before[key] != after[key]} == changed


def test_an_age_that_is_declared_is_the_freshness_policy_of_the_asset(tmp_path: Path) -> None:
    found = definitions(tmp_path)
    day, hours = timedelta(days=1), timedelta(hours=6)
    assert node_of(found, COPIES).freshness_policy == dg.FreshnessPolicy.time_window(day, hours)
    assert node_of(found, USERS).freshness_policy == dg.FreshnessPolicy.time_window(timedelta(hours=2))
    assert node_of(found, TOTALS).freshness_policy is None


@pytest.mark.parametrize(
    ("ages", "told"),
    [
        ("'freshness.max-age' = '59 s'", "are at least one minute"),
        ("'freshness.warn-age' = '6 h'", "'freshness.warn-age' needs 'freshness.max-age'"),
        ("'freshness.max-age' = '6 h', 'freshness.warn-age' = '6 h'", "is below it, or it would never warn"),
    ],
)
def test_ages_that_mean_nothing_are_refused(tmp_path: Path, ages: str, told: str) -> None:
    declared = "'freshness.max-age' = '1 d', 'freshness.warn-age' = '6 h'"
    (tmp_path / "tables.sql").write_text(SQL.replace(declared, ages), "utf-8")
    _, problems = load(tmp_path)
    assert told in "\n".join(map(str, problems))


def test_queries_and_topics_lead_to_their_statements(tmp_path: Path) -> None:
    found = definitions(tmp_path)
    for key, begins in ((QUERY, "INSERT INTO totals"), ("topics/users", "CREATE TABLE users")):
        (place,) = node_of(found, key).metadata["dagster/code_references"].code_references
        assert Path(place.file_path).read_text().splitlines()[place.line_number - 1].startswith(begins)
        assert place.label == f"tables.sql:{place.line_number}"


def test_the_table_name_has_the_instance_that_a_component_gives(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(SQL.replace("'tablestore.instance.name' = 'i',", ""), "utf-8")
    component = UpsertProjectComponent(tablestore={"tablestore.instance.name": "shop_eu"})
    spec = node_of(component.definitions_of(tmp_path), COPIES)
    assert spec.metadata["dagster/table_name"] == "tablestore.shop_eu.copies"


@pytest.mark.parametrize(
    ("statement", "lines"),
    [
        (
            "INSERT INTO t SELECT a, b FROM u WHERE c <> ' FROM '",
            ["INSERT INTO t", "SELECT a, b", "FROM u", "WHERE c <> ' FROM '"],
        ),
        (
            "INSERT INTO t SELECT LEFT(a, 1), (SELECT 1 FROM v) FROM u LEFT OUTER JOIN v ON u.a = v.a JOIN w ON w.a",
            [
                "INSERT INTO t",
                "SELECT LEFT(a, 1), (SELECT 1 FROM v)",
                "FROM u",
                "LEFT OUTER JOIN v ON u.a = v.a",
                "JOIN w ON w.a",
            ],
        ),
        (
            "INSERT INTO t SELECT `from x` FROM u GROUP BY `from x`",
            ["INSERT INTO t", "SELECT `from x`", "FROM u", "GROUP BY `from x`"],
        ),
    ],
)
def test_statements_are_shown_by_clauses(statement: str, lines: list[str]) -> None:
    assert in_lines(statement).splitlines() == lines
