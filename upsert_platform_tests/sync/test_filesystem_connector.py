"""Tables of files: what is read of them is what Flink's filesystem connector reads, and all else is refused by name."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.masking import Mask
from upsert_platform.sync import filesystem_connector
from upsert_platform.sync.binding import load
from upsert_platform.sync.filesystem_connector import FilesTable, FilesystemConnector
from upsert_platform_tests.sql.reading import one_table

COLUMNS = "key BIGINT, `value` VARCHAR"
LINES = '1,a\n2,"b\nc"\n1,d\n'
ROWS = [(1, "a"), (2, "b\nc"), (1, "d")]
CSV = {"csv.ignore-parse-errors": "true"}
JSON = {"json.ignore-parse-errors": "true"}


def _options(path: Path | str, more: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in {"path": str(path), "format": "csv", **more}.items())


def _table(path: Path | str, columns: str = COLUMNS, **more: str) -> FilesTable:
    text = f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', {_options(path, more)});"
    reader, problems = FilesystemConnector().key_reader(one_table(text))
    assert isinstance(reader, FilesTable), problems
    return reader


def _rows(path: Path | str, columns: str = COLUMNS, **more: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in _table(path, columns, **more).rows().to_pylist()]


@pytest.mark.parametrize(
    ("content", "more", "expected"),
    [
        (LINES, {}, ROWS),
        ("1,a\r\n2,b", {}, [(1, "a"), (2, "b")]),
        ('1,a"b\n', {}, [(1, 'a"b')]),
        ("x,b\n3,c\n", {}, ":1: the record cannot be read as csv: field key: 'x' is not a whole number"),
        ("x,b\n3,c\n", CSV, [(None, "b"), (3, "c")]),
        ("1,a\n2\n", {}, ":2: the record cannot be read as csv: 1 fields where 2 are declared"),
        ("2\n3,c\n", CSV, [(2, None), (3, "c")]),
        ("3,c\n1,a,z\n", {}, ":2: the record cannot be read as csv: more fields than the 2 declared"),
        ("1,a,z\n3,c\n", CSV, [(3, "c")]),
        ('1,"a\nb"\n2,"c\n3,d\n', {}, ":3: the record cannot be read as csv: a closing quote is missing"),
        ('1,a\n2,"b\n3,c\n', CSV, [(1, "a")]),
        ("1,a\n\n2,b\n", {}, ":2: the record cannot be read as csv: the message is empty"),
        ("#x\n1,a\n", {"csv.allow-comments": "true"}, [(1, "a")]),
        ("1|n/a\n", {"csv.field-delimiter": "|", "csv.null-literal": "n/a"}, [(1, None)]),
        ('{"key":1,"value":"a"}\r\n\n{"key":2}\n', {"format": "json"}, [(1, "a"), (2, None)]),
        ('{"key":1}\n{"key":"x"\n', {"format": "json"}, ":2: the record cannot be read as json: not JSON"),
        ('{"key":"x"\n{"key":3}\n', {"format": "json", **JSON}, [(3, None)]),
        ('{"key":1}{"key":2}\n[{"key":3},{"key":4}]\n', {"format": "json"}, [(1, None), (3, None), (4, None)]),
    ],
)  # fmt: skip
def test_records_are_those_of_flink(
    content: str, more: dict[str, str], expected: list[tuple[Any, ...]] | str, tmp_path: Path
) -> None:
    """The results were taken from Flink 2.2.1, as a scan of the same files; it names neither file nor line."""
    file = tmp_path / "side.txt"
    file.write_bytes(content.encode())
    if isinstance(expected, str):
        with pytest.raises(DestinationError) as error:
            _rows(file, **more)
        assert str(error.value).startswith(f"table 't': {file}{expected}")
        assert f"'{more.get('format', 'csv')}.ignore-parse-errors' = 'true'" in str(error.value)
    else:
        assert _rows(file, **more) == expected


def test_a_folder_is_all_its_files_but_hidden_ones(tmp_path: Path) -> None:
    names = ["b.csv", "a/c.csv", "_a.csv", ".b", "_h/a.csv", "a/.i/a.csv"]
    for at, name in enumerate(names):
        (tmp_path / "_data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "_data" / name).write_text(f"{at},{name}\n")
    (tmp_path / "_data" / "empty.csv").touch()
    with gzip.open(tmp_path / "_data" / "z.csv.gz", "wt") as packed:
        packed.write("9,packed\n")
    for path in (str(tmp_path / "_data"), f"{tmp_path}/_data/", f"file://{tmp_path}/_data"):
        assert _rows(path) == [(1, "a/c.csv"), (0, "b.csv"), (9, "packed")]
    assert _rows(f"file://{tmp_path}/_data/b.csv") == [(0, "b.csv")]


def test_a_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "side.csv").write_text("1,a\n")
    monkeypatch.chdir(tmp_path)
    assert _rows("side.csv") == [(1, "a")]


def test_diagnostics_read_the_files_themselves(tmp_path: Path) -> None:
    (tmp_path / "side.csv").write_text("1,a\n")
    with _table(tmp_path / "side.csv").open() as find:
        found = pa.Table.from_batches(find(pa.table({"key": [1]})))
    assert found.to_pylist() == [{"key": 1, "value": "a"}]
    with pytest.raises(DestinationError, match="there is no such file"), _table(tmp_path / "nothing.csv").open():
        pass


@pytest.mark.parametrize("name", ["missing.csv", "empty"])
def test_nothing_there_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DestinationError) as error:
        _rows(tmp_path / name)
    assert str(error.value) == (
        f"table 't': option 'path' = '{tmp_path / name}': there is no such file, and no folder with files in it"
    )


def test_files_are_of_bounded_size_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem_connector, "MOST_BYTES", 1 << 20)
    line = "1,aaaaaaaaaaaaa\n"
    (tmp_path / "a.csv").write_text(line * (1 << 15))
    with gzip.open(tmp_path / "b.csv.gz", "wt") as packed:
        packed.write(line * (1 << 15))
    assert len(_rows(tmp_path)) == 1 << 16
    (tmp_path / "c.csv").write_text("1,a\n")
    with pytest.raises(DestinationError, match=r"have more than 1 MB, and each process would hold all of them: keep"):
        _rows(tmp_path)


def test_nulls_of_not_null_columns_are_named_by_their_line(tmp_path: Path) -> None:
    (tmp_path / "side.json").write_text('{"key":1,"value":"a"}\n\n{"key":2}\n')
    with pytest.raises(
        DestinationError, match=r"side.json:3: column 'value' is declared NOT NULL, and this record has"
    ):
        _rows(tmp_path / "side.json", "key BIGINT, `value` STRING NOT NULL", format="json")
    assert _rows(tmp_path / "side.json", "key BIGINT, `value` STRING NOT NULL", format="json", **JSON) == [(1, "a")]


def test_records_that_are_left_out_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "t.csv").write_text("1,a\n1,a,z\nx,b\n2,c\n", "utf-8")
    assert _rows(tmp_path / "t.csv", "key BIGINT NOT NULL, `value` VARCHAR", **CSV) == [(1, "a"), (2, "c")]
    (warning,) = caplog.messages
    assert warning == (
        f"table 't': 2 records that cannot be read are left out, the first at {tmp_path}/t.csv:2"
        " ('csv.ignore-parse-errors')"
    )


def test_values_of_masked_columns_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "side.csv").write_text("secret,a\n")
    with pytest.raises(DestinationError) as error:
        replace(_table(tmp_path / "side.csv"), mask=Mask(frozenset({"key"}), ("key", "value"))).rows()
    assert "secret" not in str(error.value)
    assert "side.csv:1: the record cannot be read as csv: column key: ***" in str(error.value)


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        (COLUMNS, {"format": "parquet"}, "option 'format' must be 'csv' or 'json'"),
        (COLUMNS, {"lookup.cache": "PARTIAL"}, "unknown option 'lookup.cache'"),
        (COLUMNS, {"csv.field-delimiters": ";"}, "unknown option 'csv.field-delimiters'; did you mean"),
        (COLUMNS, {"json.ignore-parse-errors": "true"}, "unknown option 'json.ignore-parse-errors'"),
        (COLUMNS, {"path": ""}, "option 'path'"),
        (f"{COLUMNS}, twice AS key * 2", {}, "column 'twice' is a computed column; a filesystem table has physical"),
        (f"{COLUMNS}, m MAP<STRING, INT>", {}, "value format 'csv': "),
    ],
)
def test_what_a_declaration_may_not_have(columns: str, more: dict[str, str], message: str, tmp_path: Path) -> None:
    text = f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', {_options(tmp_path, more)});"
    reader, problems = FilesystemConnector().key_reader(one_table(text))
    assert reader is None
    assert [item for item in problems if message in item.message], problems


def test_partitions_are_refused_and_what_has_no_effect_is_warned_of(tmp_path: Path) -> None:
    given = _options(tmp_path, {"source.monitor-interval": "1 s"})
    text = f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (`value`) WITH ('connector' = 'filesystem', {given});"
    _, problems = FilesystemConnector().key_reader(one_table(text))
    assert {(item.severity, item.message) for item in problems} == {
        ("warning", "table 't': 'source.monitor-interval' has no effect: each batch reads the files anew"),
        (
            "error",
            "table 't': PARTITIONED BY names columns of folders, which are not read; name the folder of one partition"
            " in 'path', and leave it out",
        ),
    }


PROJECT = """
CREATE TABLE orders (id BIGINT, place BIGINT, at AS PROCTIME(), PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'b:1', 'key.format' = 'json',
  'value.format' = 'json');
CREATE TABLE named (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'named', 'properties.bootstrap.servers' = 'b:1', 'key.format' = 'json',
  'value.format' = 'json');
CREATE TABLE side (place BIGINT, name STRING{key}) WITH ('connector' = 'filesystem', 'path' = '/a/side.csv',
  'format' = 'csv');
{insert}
"""
JOINED = "INSERT INTO named SELECT o.id, s.name FROM orders o {}JOIN side FOR SYSTEM_TIME AS OF o.at s ON {};"
KEY = ", PRIMARY KEY (place) NOT ENFORCED"


def _run(command: str, folder: Path, insert: str, key: str = "") -> tuple[int, str]:
    (folder / "tables.sql").write_text(PROJECT.format(insert=insert, key=key), "utf-8")
    found = CliRunner().invoke(main, [command, str(folder)])
    return found.exit_code, " ".join(found.output.split())


@pytest.mark.parametrize(
    ("insert", "message"),
    [
        (
            "INSERT INTO named SELECT place, name FROM side;",
            "table 'side' is read by an INSERT INTO, but connector 'filesystem' is not readable; its files are read at"
            " the right of JOIN ... FOR SYSTEM_TIME AS OF alone, for they say nothing of changes. Send their rows to a"
            " topic ('upsert-platform send TABLE ...') and read that",
        ),
        (
            "INSERT INTO named SELECT o.id, s.name FROM orders o JOIN side s ON o.place = s.place;",
            "table 'side' is read by an INSERT INTO, but connector 'filesystem' is not readable; its files are read at",
        ),
        (
            "INSERT INTO side SELECT id, 'a' FROM orders;",
            "table 'side': connector 'filesystem' does not write tables; files have no rows by key. Write",
        ),
        (JOINED.format("", "o.place < s.place"), "rows of 'side' are found by columns that are equal to others"),
    ],
)
def test_files_are_refused_as_source_and_as_sink(insert: str, message: str, tmp_path: Path) -> None:
    code, output = _run("validate", tmp_path, insert)
    assert code == 1
    assert message in output


@pytest.mark.parametrize(
    ("key", "join", "shown"),
    [
        (KEY, "", "find the row of side with place = place as rows arrive, and none without"),
        (KEY, "LEFT ", "find the row of side with place = place as rows arrive, or nulls"),
        ("", "", "find every row of side with place = place as rows arrive, and none without"),
    ],
)
def test_a_lookup_join_is_valid_and_explained(key: str, join: str, shown: str, tmp_path: Path) -> None:
    insert = JOINED.format(join, "o.place = s.place")
    code, output = _run("validate", tmp_path, insert, key)
    assert code == 0, output
    code, output = _run("explain", tmp_path, insert, key)
    assert code == 0, output
    assert shown in output
    project, problems = load(tmp_path)
    assert [item for item in problems if item.severity == "error"] == []
    (query,) = project.queries()
    assert query.lookups == ("side",)
