"""A damaged lake, and one that cannot be written, is reported by file with a remedy, and no library's error alone."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.data_files import read_rows
from upsert_platform.changelog.live_files import live_files, read_kind
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.tables import TableLocation, open_table, write_table
from upsert_platform.core.destination import BatchSpan, RefusedRow
from upsert_platform.core.errors import ChangelogError
from upsert_platform.sync.checkups.lake import _damaged

ROWS = pa.table({"_batch": list(range(1000)), "_kind": ["+U"] * 1000, "name": [f"name {row}" for row in range(1000)]})


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def _garble(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100:300] = b"\xff" * 200
    path.write_bytes(bytes(content))


@pytest.fixture
def table(tmp_path: Path) -> TableLocation:
    location = TableLocation(str(tmp_path / "users"))
    for _ in range(2):
        write_table(location, ROWS, mode="append")
    return location


LOGS: dict[str, Callable[[Path], object]] = {
    "cut": _cut,
    "garbled": lambda path: path.write_bytes(b"\0\xff"),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("case", LOGS)
def test_a_damaged_log_is_named(table: TableLocation, case: str) -> None:
    last = sorted(Path(table.uri, "_delta_log").glob("*.json"))[-1]
    LOGS[case](last)
    with pytest.raises(ChangelogError, match=rf"{table.uri}/_delta_log.*restore it from a copy of the lake"):
        open_table(table)


def test_a_store_that_does_not_answer_is_not_called_damaged() -> None:
    said = "Kernel error -> Generic S3 error\n  HTTP error\n   tcp connect error\n    Connection refused (os error 111)"
    with pytest.raises(ChangelogError, match=r"users: the store does not answer.*check its endpoint"), naming("users"):
        raise OSError(said)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (Path.unlink, "the file is gone"),
    "cut": (_cut, "it is damaged"),
    "empty": (lambda path: path.write_bytes(b""), "it is damaged"),
    "garbled": (_garble, "it is damaged"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_damaged_file_is_named_where_it_is_read_and_by_doctor(table: TableLocation, case: str) -> None:
    delta = open_table(table)
    assert delta is not None
    paths = [item.path for item in live_files(delta)]
    assert list(_damaged(table, paths)) == []
    damage, told = FILES[case]
    damage(Path(table.uri, paths[0]))
    with pytest.raises(ChangelogError, match=rf"{paths[0]}: .*{told}.*restore it from a copy of the lake"):
        list(read_rows(table, paths, schema=ROWS.schema))
    (found,) = _damaged(table, paths)
    assert paths[0] in found
    assert told in found


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("files", [2, 9])
def test_a_damaged_file_is_named_where_rows_of_a_kind_are_read(table: TableLocation, files: int, case: str) -> None:
    """Few files are read one by one, many as a dataset."""
    for _ in range(files - 2):
        write_table(table, ROWS, mode="append")
    delta = open_table(table)
    assert delta is not None

    def read() -> pa.Table:
        return read_kind(delta, table, ROWS.schema, ["name"], kind="+U", after=-1, upto=None)

    assert read().num_rows == files * ROWS.num_rows
    path = live_files(delta)[1].path
    damage, told = FILES[case]
    damage(Path(table.uri, path))
    with pytest.raises(ChangelogError, match=rf"{path}: .*{told}.*restore it from a copy of the lake"):
        read()


@pytest.mark.parametrize("read", [RefusedStore.count, RefusedStore.keys, RefusedStore.read])
@pytest.mark.parametrize("case", ["gone", "cut", "empty"])
def test_a_damaged_file_of_refused_rows_is_named(
    tmp_path: Path, case: str, read: Callable[[RefusedStore], object]
) -> None:
    store = RefusedStore(str(tmp_path / "refused"))
    for batch in (1, 2):
        store.append([RefusedRow(f'{{"id":{batch}}}', "{}", "too long")], BatchSpan(batch - 1, batch, "c", "run"))
    assert store.count() == store.keys().num_rows == 2
    path = sorted(Path(store.location.uri).glob("*.parquet"))[0]
    damage, told = FILES[case]
    damage(path)
    with pytest.raises(ChangelogError, match=rf"{path.name}: .*{told}.*restore it from a copy of the lake"):
        read(store)


def test_an_empty_commit_in_the_middle_is_found_by_doctor(table: TableLocation) -> None:
    first = sorted(Path(table.uri, "_delta_log").glob("*.json"))[1]
    write_table(table, ROWS, mode="append")
    first.write_bytes(b"")
    assert [text.partition(": ")[2][:19] for text in _damaged(table, [])] == ["the commit is empty"]


FULL = """
import sys, pyarrow as pa
from upsert_platform.changelog.data_files import write_files
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import ChangelogError
names = pa.array([str(row) * 20 for row in range(200_000)])
batch = pa.record_batch({"_batch": pa.array([1] * 200_000), "_kind": pa.array(["+U"] * 200_000), "name": names})
try:
    list(write_files([batch], location=TableLocation(sys.argv[1]), schema=batch.schema, batch=None))
except ChangelogError as error:
    print(error)
"""


def test_a_disk_that_is_full_is_named(tmp_path: Path) -> None:
    """A bound on the size of files stands for a disk: the system call fails in the same place."""

    def bound() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    folder = tmp_path / "users"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(folder)], capture_output=True, text=True, check=False, preexec_fn=bound,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert str(folder) in done.stdout, done.stderr
    assert "the disk is full, or the quota is used up. Nothing of this batch was committed" in done.stdout


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device"), "the disk is full"),
        (OSError("Generic LocalFileSystem error: No space left on device (os error 28)"), "the disk is full"),
        (PermissionError(13, "Permission denied"), "may not write it"),
        (OSError(5, "Input/output error"), "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_named(error: OSError, told: str) -> None:
    with pytest.raises(ChangelogError, match=rf"^/lake/users: .*{told}"), naming("/lake/users", writes=True):
        raise error
