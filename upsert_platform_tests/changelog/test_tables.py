"""Storage options of a lake behind a URI: from a file, never repeated in an error."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from upsert_platform.changelog.tables import OPTIONS_VARIABLE, create_table, open_table, storage_options
from upsert_platform.errors import EndpointError


def test_options_come_from_the_named_file_for_uris_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lake.options"
    file.write_text("# where it is\naws_endpoint=http://127.0.0.1:1\n\naws_secret_access_key=a=b\n")
    monkeypatch.setenv(OPTIONS_VARIABLE, str(file))
    assert storage_options("s3://bucket/lake") == {
        "aws_endpoint": "http://127.0.0.1:1", "aws_secret_access_key": "a=b",
    }  # fmt: skip
    assert storage_options(str(tmp_path)) is None
    assert storage_options(tmp_path.as_uri()) is None


@pytest.mark.parametrize(("text", "told"), [("hunter2\n", ":1: a line is name=value"), (None, "cannot be read")])
def test_what_is_wrong_with_the_file_is_told_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, told: str
) -> None:
    file = tmp_path / f"options-{text is None}"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv(OPTIONS_VARIABLE, str(file))
    with pytest.raises(EndpointError, match=told) as caught:
        storage_options("s3://bucket/lake")
    assert "hunter2" not in str(caught.value)


def test_a_table_is_created_once_and_opened_where_it_is(tmp_path: Path) -> None:
    for uri in (str(tmp_path / "by path"), (tmp_path / "by uri").as_uri()):
        assert open_table(uri) is None
        for identity in ("first", "second"):
            create_table(uri, pa.schema([pa.field("id", pa.int64())]), {"upsert.changelog.id": identity})
        found = open_table(uri)
        assert found is not None
        assert found.metadata().configuration["upsert.changelog.id"] == "first"
