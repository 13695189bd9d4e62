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
) -> list[str]:
    tables = [MySqlTable("shop", "t", columns, ("id",)) for columns in (before, now)]
    followed = {column.name for column in (*before, *now)}
    return rewritten_columns(*tables, sql=sql, strict=strict, given=given, followed=followed)


COLUMNS = [
    ("ALTER TABLE t ADD COLUMN more BIGINT", (ID, V), (ID, V, MORE), NOTHING, []),
    ("ALTER TABLE t ADD COLUMN more BIGINT DEFAULT 5", (ID, V), (ID, V, MORE), FILLED, ["more"]),
    ("ALTER TABLE t ADD (more BIGINT NOT NULL, x INT)", (ID, V), (ID, V, MORE), FILLED, ["more"]),
    ("ALTER TABLE t ADD INDEX i (v)", (ID, V), (ID, V), FILLED, []),
    # Both were read from the catalogue after the statement: only its words tell.
    ("ALTER TABLE shop.`t` DROP v, ADD COLUMN `more` BIGINT DEFAULT (1, 2)", (ID, MORE), (ID, MORE), FILLED, ["more"]),
    ("ALTER TABLE t DROP COLUMN more, ADD more BIGINT", (ID, MORE), (ID, MORE), NOTHING, []),
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
    assert judged("ALTER IGNORE TABLE t MODIFY c ...", (ID, old), (ID, new)) == ([] if lax else ["c"])
