"""What was answered is there after ``kill -9`` and after a clean stop; both leave a database that opens."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tablestore import BatchWriteRowRequest, Condition, PutRowItem, Row, TableInBatchWriteRowItem

from upsert_platform_tests.local.tablestore.conftest import connect, create_table
from upsert_platform_tests.local.tablestore.server import tablestore_server


def write_batch(client: Any, number: int) -> None:
    items = [PutRowItem(Row([("k", f"{number}-{i}")], [("n", number)]), Condition("IGNORE")) for i in range(20)]
    request = BatchWriteRowRequest()
    request.add(TableInBatchWriteRowItem("t", items))
    assert client.batch_write_row(request).is_all_succeed()


def count(client: Any, number: int) -> int:
    keys = [[("k", f"{number}-{i}")] for i in range(20)]
    return sum(client.get_row("t", key, max_version=1)[1] is not None for key in keys)


def test_kill_and_restart(tmp_path: Path) -> None:
    with tablestore_server(tmp_path) as handle:
        client = connect(handle)
        create_table(client, "t", [("k", "STRING")], max_version=2)
        answered: list[int] = []

        def write() -> None:
            try:
                for number in range(10_000):
                    write_batch(client, number)
                    answered.append(number)
            except Exception:  # noqa: BLE001 - the server is killed under the writer: any network error ends it
                return

        writer = threading.Thread(target=write)
        writer.start()
        while len(answered) < 15:
            writer.join(0.01)
        handle.kill()
        writer.join(30)
        handle.restart()
        client = connect(handle)
        assert client.describe_table("t").table_options.max_version == 2
        assert [count(client, number) for number in answered] == [20] * len(answered)
        assert count(client, answered[-1] + 1) in (0, 20)
        write_batch(client, 20_000)


def test_clean_stop(tmp_path: Path) -> None:
    with tablestore_server(tmp_path) as handle:
        client = connect(handle)
        create_table(client, "t", [("k", "STRING")])
        write_batch(client, 1)
        assert handle.stop() == 0
        handle.start()
        assert count(connect(handle), 1) == 20


def test_one_server_per_directory(tmp_path: Path) -> None:
    with (
        tablestore_server(tmp_path) as handle,
        pytest.raises(RuntimeError, match="another server uses the data"),
        tablestore_server(tmp_path),
    ):
        pass
    assert handle.process is not None
    assert handle.process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--fault", "boom"], "unknown kind 'boom'"), (["--max-tables", "0"], "max-tables"), (["--wrong"], "--wrong")],
)
def test_refused_arguments(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(RuntimeError, match=message), tablestore_server(tmp_path, arguments=arguments):
        pass
