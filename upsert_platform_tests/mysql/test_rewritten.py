"""Which columns may have other values behind a statement, in rows of which the log tells nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from upsert_platform.mysql.columns import MySqlColumn, MySqlTable
from upsert_platform.mysql.rewritten import Given, rewritten_columns

ID, V = MySqlColumn("id", "int", nullable=False), MySqlColumn("v", "int")
MORE = MySqlColumn("more", "bigint")
NOTHING, FILLED = Given(), Given(frozenset({"more"}))
COMPUTED = Given(frozenset({"more"}), frozenset({"more"}))


def judged(
    sql: str,
    before: tuple[MySqlColumn, ...],
    now: tuple[MySqlColumn, ...],
    *,
    given: Given = NOTHING,
    strict: bool = True,
    known: tuple[MySqlColumn, ...] | None = None,
) -> list[str]:
    tables = [MySqlTable("shop", "t", columns, ("id",)) for columns in (before, now)]
    followed = {column.name for column in (*before, *now)}
    held = [column.name for column in (before if known is None else known)]
    return rewritten_columns(*tables, sql=sql, strict=strict, given=given, followed=followed, known=held)


COLUMNS = [
    ("ALTER TABLE t ADD COLUMN more BIGINT", (ID, V), (ID, V, MORE), NOTHING, []),
    ("ALTER TABLE t ADD COLUMN more BIGINT DEFAULT 5", (ID, V), (ID, V, MORE), FILLED, ["more"]),
    ("ALTER TABLE t ADD (more BIGINT NOT NULL, x INT)", (ID, V), (ID, V, MORE), FILLED, ["more"]),
    ("ALTER TABLE t ADD INDEX i (v)", (ID, V), (ID, V), FILLED, []),
    # Both were read from the catalogue after the statement: only its words tell.
    ("ALTER TABLE shop.`t` DROP v, ADD COLUMN `more` BIGINT DEFAULT (1, 2)", (ID, MORE), (ID, MORE), FILLED, ["more"]),
    ("ALTER TABLE t DROP COLUMN more, ADD more BIGINT", (ID, MORE), (ID, MORE), NOTHING, ["more"]),
    ("ALTER TABLE t DROP `More`, ADD COLUMN IF NOT EXISTS more BIGINT", (ID, MORE), (ID, MORE), NOTHING, ["more"]),
    ("ALTER TABLE t DROP INDEX more, ALTER v DROP DEFAULT, ADD x INT", (ID, V, MORE), (ID, V, MORE), NOTHING, []),
    ("ALTER TABLE t ADD COLUMN IF NOT EXISTS more BIGINT DEFAULT 5", (ID, MORE), (ID, MORE), FILLED, []),
    ("ALTER TABLE t ADD UNIQUE more (v), ADD KEY (v)", (ID, MORE), (ID, MORE), FILLED, []),
    ("ALTER TABLE t CHANGE v more BIGINT", (ID, V), (ID, MORE), NOTHING, ["more"]),
    ("ALTER TABLE t RENAME COLUMN v TO more", (ID, V), (ID, MORE), NOTHING, ["more"]),
    ("ALTER TABLE t RENAME COLUMN v TO `MORE`, RENAME COLUMN more TO v", (ID, V, MORE), (ID, MORE, V), NOTHING,
     ["more", "v"]),
    ("ALTER TABLE t RENAME INDEX v TO more", (ID, MORE), (ID, MORE), NOTHING, []),
    ("ALTER TABLE t CHANGE more more BIGINT", (ID, MORE), (ID, MORE), FILLED, []),
    ("ALTER TABLE t MODIFY more BIGINT AS (v + 2) STORED", (ID, MORE), (ID, MORE), COMPUTED, ["more"]),
    ("ALTER TABLE t ALTER COLUMN more SET DEFAULT 7", (ID, MORE), (ID, MORE), FILLED, []),
    ("RENAME TABLE t TO _t_del, _t_gho TO t", (ID, V), (ID, V, MORE), NOTHING, []),
    ("RENAME TABLE t TO _t_del, _t_gho TO t", (ID, V), (ID, V, MORE), FILLED, ["more"]),
    ("RENAME TABLE t TO _t_del, _t_gho TO t", (ID, V), (ID, MORE), NOTHING, ["more"]),
    ("RENAME TABLE t TO _t_del, _t_gho TO t", (ID, MORE), (ID, MORE), COMPUTED, []),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "before", "now", "given", "columns"), COLUMNS)
def test_columns_that_are_new_renamed_or_computed(
    sql: str, before: tuple[MySqlColumn, ...], now: tuple[MySqlColumn, ...], given: Given, columns: list[str]
) -> None:
    assert judged(sql, before, now, given=given) == columns


SWAP = "RENAME TABLE t TO _t_del, _t_gho TO t"


def test_a_column_that_is_back_does_not_have_its_values_any_more() -> None:
    """Whether it was there is told by the rows that were read, not by a catalogue that is newer than the log."""
    add = "ALTER TABLE t ADD more BIGINT"
    assert judged(add, (ID,), (ID, MORE), known=(ID, MORE)) == ["more"]
    assert judged(SWAP, (ID,), (ID, MORE), known=(ID, MORE)) == ["more"]
    assert judged(add, (ID, MORE), (ID, MORE), known=(ID,)) == []
    assert judged("ALTER TABLE t DROP more", (ID, MORE), (ID, MORE), known=(ID, MORE)) == ["more"]


def test_a_type_that_the_next_statement_took_back_may_have_cut_values() -> None:
    tables = [MySqlTable("shop", "t", (ID, V), ("id",))] * 2
    sql = "ALTER TABLE t MODIFY v SMALLINT"
    for strict, last, named in ((False, False, ["v"]), (True, False, []), (False, True, [])):
        found = rewritten_columns(
            *tables, sql=sql, strict=strict, last=last, given=NOTHING, followed=["id", "v"], known=["id", "v"]
        )
        assert found == named


def test_a_type_that_stayed_behind_the_next_statement_is_known() -> None:
    before = MySqlTable("shop", "t", (ID, text("varchar", 20)), ("id",))
    now = MySqlTable("shop", "t", (ID, replace(text("varchar", 30), declared="varchar(30)")), ("id",))
    for kind, named in (("VARCHAR(30) NULL", []), ("VARCHAR (30)", []), ("VARCHAR(10)", ["c"]), ("CHAR(30)", ["c"])):
        sql = f"ALTER TABLE t MODIFY c {kind}"
        known = ["id", "c"]
        found = rewritten_columns(
            before, now, sql=sql, strict=False, last=False, given=NOTHING, followed=known, known=known
        )
        assert found == named, kind


INDEXES = [
    ((("id",),), (("id",), ("v",)), ["(v)"]),
    ((("id",), ("v", "w")), (("id",), ("v",)), ["(v)"]),
    ((("id",), ("v",)), (("id",), ("w", "v")), []),
    ((("id",),), (("id",), ("id", "v")), []),
    ((("id",), ("n utf8mb4_bin",)), (("id",), ("n utf8mb4_general_ci",)), ["(n utf8mb4_general_ci)"]),
    ((("id",), ("n",)), (("id",), ("n(3)",)), ["(n(3))"]),
    ((("id",), ("v",)), (("id",),), []),
]


@pytest.mark.parametrize(("before", "now", "named"), INDEXES)
def test_rows_that_a_copy_does_not_have(
    before: tuple[tuple[str, ...], ...], now: tuple[tuple[str, ...], ...], named: list[str]
) -> None:
    tables = [MySqlTable("shop", "t", (ID, V), ("id",), unique) for unique in (before, now)]
    for sql, expected in ((SWAP, named), ("ALTER TABLE t ADD UNIQUE (v)", [])):
        found = rewritten_columns(*tables, sql=sql, strict=True, given=NOTHING, followed=["id", "v"])
        assert found == [f"rows that share a value of the unique index {index}" for index in expected]


def test_unique_indexes_that_an_earlier_version_did_not_note_are_not_new() -> None:
    before = MySqlTable("shop", "t", (ID, V), ("id",))
    noted = replace(before, unique=(("id",),))

    def found(before: MySqlTable, now: MySqlTable) -> list[str]:
        sql = "RENAME TABLE t TO _t_del, _t_gho TO t"
        return rewritten_columns(
            before, now, sql=sql, strict=True, given=NOTHING, followed={"id", "v"}, known=["id", "v"]
        )

    assert found(before, noted) == []
    assert found(noted, replace(noted, unique=(("id",), ("v",)))) != []


def test_columns_that_nobody_follows_do_not_count() -> None:
    tables = [MySqlTable("shop", "t", columns, ("id",)) for columns in ((ID, V), (ID, V, MORE))]
    sql = "ALTER TABLE t ADD more BIGINT DEFAULT 5"
    assert rewritten_columns(*tables, sql=sql, strict=True, given=FILLED, followed=["id", "v"]) == []


def decimal(precision: int, fraction: int) -> MySqlColumn:
    return MySqlColumn("c", "decimal", precision=precision, fraction=fraction)


def text(kind: str, length: int, charset: str = "utf8mb4") -> MySqlColumn:
    return MySqlColumn("c", kind, length=length, charset=charset)


# Old, new, whether values stay where a statement fails that does not fit them, and where it does not fail.
TYPES = [
    (MySqlColumn("c", "int"), MySqlColumn("c", "int", nullable=False), True, False),
    (MySqlColumn("c", "int", nullable=False), MySqlColumn("c", "int"), True, True),
    (MySqlColumn("c", "int"), MySqlColumn("c", "bigint"), True, True),
    (MySqlColumn("c", "bigint"), MySqlColumn("c", "int"), True, False),
    (MySqlColumn("c", "int"), MySqlColumn("c", "bigint", unsigned=True), True, False),
    (MySqlColumn("c", "int"), text("varchar", 20), False, False),
    (decimal(8, 2), decimal(12, 2), True, True),
    (decimal(12, 2), decimal(8, 2), True, False),
    (decimal(8, 4), decimal(8, 2), False, False),
    (text("varchar", 20), text("varchar", 200), True, True),
    (text("varchar", 200), text("varchar", 20), True, False),
    (text("varchar", 20), text("text", 65535), True, True),
    (text("varchar", 20), text("char", 20), False, False),
    (text("char", 20), text("varchar", 20), True, True),
    (text("varchar", 20, "latin1"), text("varchar", 20), True, True),
    (text("varchar", 20), text("varchar", 20, "latin1"), True, False),
    (MySqlColumn("c", "datetime", fraction=3), MySqlColumn("c", "datetime"), False, False),
    (MySqlColumn("c", "datetime"), MySqlColumn("c", "datetime", fraction=3), True, True),
    (MySqlColumn("c", "datetime"), MySqlColumn("c", "date"), False, False),
    (MySqlColumn("c", "enum", elements=("a", "b")), MySqlColumn("c", "enum", elements=("b", "c", "a")), True, True),
    (MySqlColumn("c", "enum", elements=("a", "b")), MySqlColumn("c", "enum", elements=("a",)), True, False),
    (MySqlColumn("c", "float"), MySqlColumn("c", "double"), False, False),
    (MySqlColumn("c", "binary", length=5), MySqlColumn("c", "binary", length=9), False, False),
    (MySqlColumn("c", "varbinary", length=5), MySqlColumn("c", "varbinary", length=9), True, True),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "strict", "lax"), TYPES)
def test_types_that_change(old: MySqlColumn, new: MySqlColumn, strict: bool, lax: bool) -> None:
    sql, old, new = "ALTER TABLE t MODIFY c ...", replace(old, declared="old"), replace(new, declared="new")
    for is_strict, stays in ((True, strict), (False, lax)):
        assert judged(sql, (ID, old), (ID, new), strict=is_strict) == ([] if stays else ["c"])
    for told in ("ALTER IGNORE TABLE t MODIFY c ...", SWAP):
        assert judged(told, (ID, old), (ID, new)) == ([] if lax else ["c"])
