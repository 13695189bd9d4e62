"""The primary key stands in the changelog: another one is refused, in runs, in `status` and in `validate`."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.head import KEY_PROPERTY
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.store import ChangelogStore, Head
from upsert_platform.cli.main import main
from upsert_platform.core.errors import ChangelogError, SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type
from upsert_platform_tests.changelog.test_older_lakes import ARCHIVE
from upsert_platform_tests.changelog.test_store import declared

COLUMNS = {"a": "BIGINT", "b": "BIGINT", "v": "STRING"}
SQL = """
CREATE TABLE s ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 's',
  'properties.bootstrap.servers' = '127.0.0.1:1', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE t ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = 'tablestore',
  'tablestore.endpoint' = 'http://127.0.0.1:1', 'tablestore.instance.name' = 'i', 'tablestore.access.key.id' = 'x',
  'tablestore.access.key.secret' = 'y');
INSERT INTO t SELECT * FROM s;
"""


def keyed(*key: str, columns: dict[str, str] | None = None, **options: str) -> Table:
    found = tuple(Column(name, parse_type(kind)) for name, kind in (columns or COLUMNS).items())
    return Table("s", found, key, Options(options), SourceLocation("s.sql", 1))


def append(store: ChangelogStore, head: Head) -> Head | None:
    schema = rows.arrow_schema(store.table)
    row = {rows.KIND: rows.KIND_UPDATE_AFTER, rows.TOPIC: "t", rows.PARTITION: 0, rows.OFFSET: head.batch, rows.ROW: 0}
    batch = pa.RecordBatch.from_pylist([row], schema=schema)
    files = write_rows([batch], location=store.location, schema=schema, batch=head.batch + 1)
    return store.append(files, head=head, positions=head.positions, run="r")


@pytest.mark.parametrize("key", [("a",), ("b", "a"), ("a", "b", "v"), ("c", "b"), ()])
def test_another_key_is_refused_before_anything_is_read_or_written(tmp_path: Path, key: tuple[str, ...]) -> None:
    store = ChangelogStore(str(tmp_path / "s"), keyed("a", "b"))
    head = append(store, store.create())
    assert head is not None
    columns = {"c" if name == "a" else name: kind for name, kind in COLUMNS.items()} if "c" in key else COLUMNS
    other = ChangelogStore(str(tmp_path / "s"), keyed(*key, columns=columns))
    shown = f"PRIMARY KEY ({', '.join(key)})" if key else "no primary key"
    for ask in (other.head, other.create, other.check_declared, lambda: append(other, head)):
        with pytest.raises(ChangelogError) as refused:
            ask()
        told = str(refused.value)
        assert "'s'" in told
        assert f"has PRIMARY KEY (a, b), and the table is declared with {shown}" in told
        assert "'upsert-platform reset s --drop-target'" in told
    assert store.head() == head


def test_another_format_of_the_key_is_taken(tmp_path: Path) -> None:
    store = ChangelogStore(str(tmp_path / "s"), keyed("a", "b", **{"key.format": "csv"}))
    head = append(store, store.create())
    assert ChangelogStore(str(tmp_path / "s"), keyed("a", "b", **{"key.format": "json"})).head() == head


def test_a_changelog_of_an_earlier_version_gets_its_key_with_the_next_batch(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    uri = str(tmp_path / "orders")
    assert KEY_PROPERTY not in DeltaTable(uri).metadata().configuration
    store, other = ChangelogStore(uri, declared()), ChangelogStore(uri, replace(declared(), primary_key=("value",)))
    head = store.head()
    assert head is not None
    assert other.head() == head, "nobody knows its key yet"
    after = append(store, head)
    assert after is not None
    assert (after.batch, after.positions) == (head.batch + 1, head.positions)
    assert store.head() == after
    assert json.loads(DeltaTable(uri).metadata().configuration[KEY_PROPERTY]) == ["id"]
    with pytest.raises(ChangelogError, match=r"has PRIMARY KEY \(id\)"):
        other.head()
    assert append(store, head) is None, "of two runs one commits"
    assert append(store, after) is not None


def test_a_column_that_is_renamed_in_case_alone_is_named(tmp_path: Path) -> None:
    store = ChangelogStore(str(tmp_path / "s"), keyed("a"))
    head = append(store, store.create())
    assert head is not None
    other = ChangelogStore(str(tmp_path / "s"), keyed("a", columns={"a": "BIGINT", "b": "BIGINT", "V": "STRING"}))
    for ask in (other.create, other.check_declared, lambda: append(other, head)):
        with pytest.raises(ChangelogError, match="has a column 'v', and the table is declared with 'V'") as refused:
            ask()
        assert "Declare 'v' again" in str(refused.value)


def project(folder: Path, *, key: str, columns: str = "a BIGINT, b BIGINT, v STRING") -> None:
    folder.mkdir(exist_ok=True)
    (folder / "p.sql").write_text(SQL.format(columns=columns, key=key))


def test_validate_and_status_tell_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "lake"))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(tmp_path / "project"))
    project(tmp_path / "project", key="a, b")
    store = ChangelogStore(Lake(str(tmp_path / "lake")).changelog("s"), keyed("a", "b"))
    assert append(store, store.create()) is not None
    done = CliRunner().invoke(main, ["validate"])
    assert (done.exit_code, "no error" in done.output) == (0, True), done.output
    project(tmp_path / "project", key="b, a")
    done = CliRunner().invoke(main, ["validate"])
    assert done.exit_code == 1
    assert "p.sql:2: " in done.output
    assert "has PRIMARY KEY (a, b), and the table is declared with PRIMARY KEY (b, a)" in done.output
    assert "1 error" in done.output
    status = json.loads(CliRunner().invoke(main, ["status", "--json"]).stdout)
    assert "declared with PRIMARY KEY (b, a)" in status["changelogs"][0]["error"]
    project(tmp_path / "project", key="a, b", columns="a BIGINT, b BIGINT, V STRING")
    done = CliRunner().invoke(main, ["validate"])
    assert (done.exit_code, "has a column 'v', and the table is declared with 'V'" in done.output) == (1, True)
