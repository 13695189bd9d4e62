"""Files of lookup joins on object storage, which is reached as a lake there is."""

from __future__ import annotations

import pytest

from upsert_platform.changelog.lake import OPTIONS_VARIABLE, Lake
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.types import parse_type
from upsert_platform.sync.filesystem_connector import FilesTable
from upsert_platform_tests.s3 import S3

pytestmark = pytest.mark.systems


def _rows(path: str) -> list[dict[str, object]]:
    return FilesTable("t", path, "csv", {}, (("key", parse_type("BIGINT")),)).rows().to_pylist()


def test_a_file_and_a_folder_are_read(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTIONS_VARIABLE, str(s3_server.options))
    root = f"{s3_server.uri}/side"
    system, _ = file_system(TableLocation(root, Lake.at(root).options))
    for name, content in {"a.csv": b"1\n2\n", "b/c.csv": b"3\n", "_d.csv": b"4\n", "e.csv": b"x\n"}.items():
        with system.open_output_stream(f"files/{name}" if name != "e.csv" else name) as file:
            file.write(content)
    assert _rows(f"{root}/files/a.csv") == [{"key": 1}, {"key": 2}]
    assert _rows(f"{root}/files") == _rows(f"{root}/files/") == [{"key": 1}, {"key": 2}, {"key": 3}]
    with pytest.raises(DestinationError, match=rf"table 't': {root}/e.csv:1: the record cannot be read as csv"):
        _rows(f"{root}/e.csv")
    with pytest.raises(DestinationError, match="there is no such file"):
        _rows(f"{root}/nothing.csv")
