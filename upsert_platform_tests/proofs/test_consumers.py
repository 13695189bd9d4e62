"""The consumers of a changed table: those that read a changed column, by topics, look-ups, filters and contracts."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.core.errors import DeclarationError
from upsert_platform.core.model import Project
from upsert_platform.proofs.consumers import Change, Consumer, consumers_of
from upsert_platform.sync.binding import bind, load

KAFKA = """'connector' = 'upsert-kafka', 'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'json', 'value.format' = 'json', 'topic' = """
TABLESTORE = """'connector' = 'tablestore', 'tablestore.endpoint' = 'http://t', 'tablestore.instance.name' = 'i',
  'tablestore.access.key.id' = 'k', 'tablestore.access.key.secret' = 's'"""
PROJECT = f"""
CREATE TABLE orders (id BIGINT, name STRING, region STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ({KAFKA}'orders');
CREATE TABLE regions (region STRING, orders BIGINT, total BIGINT, note STRING, PRIMARY KEY (region) NOT ENFORCED)
  WITH ({KAFKA}'regions', 'contract.billing' = 'region, total BIGINT', 'contract.billing.key' = 'region',
  'contract.reports' = 'note');
CREATE TABLE regions_in (region STRING, orders BIGINT, total BIGINT, note STRING, PRIMARY KEY (region) NOT ENFORCED)
  WITH ({KAFKA}'regions');
CREATE TABLE big (region STRING, note STRING, PRIMARY KEY (region) NOT ENFORCED) WITH ({TABLESTORE});
CREATE TABLE totals (region STRING, twice BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH ({KAFKA}'totals');
CREATE TABLE totals_in (region STRING, twice BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH ({KAFKA}'totals');
CREATE TABLE sums (every BIGINT, PRIMARY KEY (every) NOT ENFORCED) WITH ({TABLESTORE});
CREATE TABLE notes (region STRING, note STRING, PRIMARY KEY (region) NOT ENFORCED) WITH ({TABLESTORE});
INSERT INTO regions SELECT region, COUNT(*), CAST(SUM(amount) AS BIGINT), MAX(name) FROM orders GROUP BY region;
INSERT INTO big SELECT region, note FROM regions_in WHERE orders > 10;
INSERT INTO totals SELECT region, total * 2 FROM regions_in;
INSERT INTO sums SELECT SUM(twice) FROM totals_in;
INSERT INTO notes SELECT region, UPPER(note) FROM regions_in;
"""


def project(folder: Path, text: str = PROJECT) -> Project:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "p.sql").write_text(text, "utf-8")
    return bind(*load(folder, root=str(folder))).project


def found(change: Change, now: Project, before: Project | None = None) -> dict[str, Consumer]:
    return {item.name: item for item in consumers_of(change, now, before)}


def test_only_readers_of_the_changed_column_are_named(tmp_path: Path) -> None:
    now = project(tmp_path)
    total = found(Change("regions", frozenset({"total"})), now)
    assert {(name, item.via, item.reads, item.columns) for name, item in total.items()} == {
        ("billing", "regions", ("total",), ()),
        ("totals", "regions_in", ("total",), ("twice",)),
        ("sums", "totals_in", ("twice",), ("every",)),
    }
    assert not any(item.breaks for item in total.values())
    note = found(Change("regions", frozenset({"note"})), now)
    assert {(name, item.columns) for name, item in note.items()} == {
        ("reports", ()), ("big", ("note",)), ("notes", ("note",)),
    }  # fmt: skip
    # A column of a filter decides which rows there are.
    orders = found(Change("regions", frozenset({"orders"})), now)
    assert {(name, item.columns) for name, item in orders.items()} == {("big", ("region", "note"))}


def test_a_removed_column_another_type_and_another_key_break_their_readers(tmp_path: Path) -> None:
    before = project(tmp_path / "before")
    texts = {
        "removed": PROJECT.replace("total BIGINT, note STRING, PRIMARY KEY (region) NOT ENFORCED)\n  WITH ("
                                   + KAFKA + "'regions', 'contract.billing' = 'region, total BIGINT'",
                                   "total BIGINT, PRIMARY KEY (region) NOT ENFORCED)\n  WITH ("
                                   + KAFKA + "'regions', 'contract.billing' = 'region, total BIGINT'")
                          .replace("BIGINT), MAX(name)", "BIGINT)")
                          .replace(",\n  'contract.reports' = 'note'", ""),
        "type": PROJECT.replace("total BIGINT, note STRING, PRIMARY KEY (region) NOT ENFORCED)\n  WITH ("
                                + KAFKA + "'regions', 'contract.billing' = 'region, total BIGINT'",
                                "total STRING, note STRING, PRIMARY KEY (region) NOT ENFORCED)\n  WITH ("
                                + KAFKA + "'regions', 'contract.billing' = 'region, total'")
                       .replace("CAST(SUM(amount) AS BIGINT)", "CAST(SUM(amount) AS STRING)"),
    }  # fmt: skip
    assert len({PROJECT, *texts.values()}) == 3
    removed = found(Change("regions", frozenset()), project(tmp_path / "removed", texts["removed"]), before)
    assert {name: item.breaks for name, item in removed.items()} == {
        "reports": "column 'note' STRING is removed",
        "big": "column 'note' STRING is removed",
        "notes": "column 'note' STRING is removed",
    }
    other = found(Change("regions", frozenset({"total"})), project(tmp_path / "type", texts["type"]), before)
    assert {name: item.breaks for name, item in other.items()} == {
        "billing": "column 'total' is STRING, and was BIGINT",
        "totals": "column 'total' is STRING, and was BIGINT",
        "sums": "",
    }
    stopped = found(Change("regions", frozenset(), "no insert writes it any more"), before)
    assert {name for name, item in stopped.items() if item.breaks} == {"billing", "reports", "big", "totals", "notes"}


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("'contract.app' = 'region, totals'", "consumer 'app' relies on column 'totals', which is not declared; did"),
        ("'contract.app' = 'total INT'", "consumer 'app' relies on column 'total' of type INT, which is declared as"),
        ("'contract.app.key' = 'region, note'", "consumer 'app' relies on the primary key (region, note), and the key"),
        ("'contract.app' = 'total DECIMAL(2'", "option 'contract.app' takes columns with or without types"),
        ("'contract.app.keys' = 'region'", "option 'contract.app.keys' is 'contract.NAME' with columns"),
        ("'contract.app' = ''", "option 'contract.app' is 'contract.NAME' with columns"),
    ],
)
def test_a_declaration_that_breaks_a_contract_is_refused(tmp_path: Path, option: str, says: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        project(tmp_path, PROJECT.replace("'contract.reports' = 'note'", option))
    assert says in str(raised.value)
    assert "p.sql:8" in str(raised.value)


def test_types_and_spelling_of_a_contract_are_those_of_flink(tmp_path: Path) -> None:
    wide = "'contract.reports' = '`note`, total bigint NOT NULL , orders'"
    project(tmp_path, PROJECT.replace("'contract.reports' = 'note'", wide))
