"""Whatever names, comments and option values are, a table is read as it was written."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform_tests.sql.reading import errors, read

# ${ begins a variable, and has tests of its own.
TEXTS = st.text(max_size=20).filter(lambda text: "${" not in text)
NAMES = TEXTS.filter(lambda text: text != "")
TYPES = st.sampled_from(["INT", "DECIMAL(12, 2)", "MAP<STRING, ARRAY<INT>>", "ROW<`a ``b` INT, c STRING NOT NULL>"])


def quoted(text: str, mark: str) -> str:
    return mark + text.replace(mark, mark * 2) + mark


@settings(max_examples=60, deadline=None)
@given(
    columns=st.lists(st.tuples(NAMES, TYPES, TEXTS), min_size=1, max_size=4, unique_by=lambda item: item[0].lower()),
    options=st.dictionaries(NAMES, TEXTS, max_size=4),
    blank=st.sampled_from([" ", "\n", " -- ; '\n", "/* ; ' ` */", "\t"]),
)
def test_a_table_is_read_as_it_was_written(
    columns: list[tuple[str, str, str]], options: dict[str, str], blank: str
) -> None:
    listed = f",{blank}".join(
        f"{quoted(name, '`')}{blank} {kind}{blank} COMMENT{blank}{quoted(comment, chr(39))}"
        for name, kind, comment in columns
    )
    given_options = f"{blank},".join(f"{quoted(name, chr(39))}{blank}={quoted(value, chr(39))}"
                                     for name, value in options.items())  # fmt: skip
    scripts, problems = read(f"CREATE TABLE{blank} t ({listed}){blank}WITH{blank}({given_options});{blank}")
    assert errors(problems) == []
    table = scripts.tables["t"]
    assert [(column.name, column.comment) for column in table.columns] == [(name, note) for name, _, note in columns]
    assert dict(table.options) == options
    targets = ", ".join(quoted(name, "`") for name, _, _ in reversed(columns))
    where = f"WHERE {quoted(columns[0][0], '`')} IS NULL"
    copy = f"CREATE TABLE u LIKE t; INSERT INTO u ({targets}) SELECT {targets} FROM t {where}"
    scripts, problems = read(f"CREATE TABLE t ({listed}) WITH ({given_options});{copy}")
    assert errors(problems) == []
    names = ["`" + name.replace("`", "``") + "`" for name, _, _ in columns]
    assert list(scripts.inserts[0].projections) == names
    assert scripts.inserts[0].predicate == f"{names[0]} IS NULL"
