"""Names of tables as folders of the lake: each table in a folder of its own, whatever its name is."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from upsert_platform.changelog import pauses
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.path_segment import MOST_BYTES, other_case, path_segment, same_folder
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore, Positions
from upsert_platform.changelog.tables import open_table, write_table
from upsert_platform.changelog.upkeep import remove_unused
from upsert_platform_tests.changelog.test_store import declared

CHARACTERS = "ab/.~%2fF\\\t\n #?[]^|\x00\x7f:é表$-_" + "ÅA\u030a\ud800"
NAMES = st.one_of(
    st.text(CHARACTERS, max_size=6), st.text(max_size=12), st.text("a~/é", min_size=240, max_size=260),
    st.sampled_from(["", ".", "..", "../../x", "a/b", "a%2fb", ".a.lock", "_delta_log", "~", "~~~", " a", "a "]),
)  # fmt: skip
AWKWARD = ["..", "../../x", "a/b", "a%2fb", "a\tb", "a\nb", "a#b", "a?b", "a[b]", "a\\b", "~a", " a ", "é" * 200, ""]


@given(NAMES)
def test_a_segment_is_one_folder_below_its_parent(name: str) -> None:
    segment = path_segment(name)
    assert segment == path_segment(name)
    path = Path("/lake/changelogs", segment)
    assert (path.parent, path.resolve()) == (Path("/lake/changelogs"), path)
    assert segment not in ("", ".", "..", "_delta_log")
    assert not set("/\\#?\x00\n\t") & set(segment)
    assert len(f".{segment}.lock".encode()) <= 255


@given(NAMES, NAMES)
@example("a/b", "~a~2fb")
@example("\t", "~09")
@example("~~2e", ".")
@example("a", " a")
@example("a" * 300, path_segment("a" * 300))
def test_two_names_have_two_segments_and_neither_lies_in_the_other(first: str, second: str) -> None:
    assume(first != second)
    one, other = path_segment(first), path_segment(second)
    assert one != other
    lake = Lake("s3://bucket/lake")
    for place in (lake.changelog, lake.refused, lake.query):
        assert not place(first).uri.startswith(f"{place(second).uri}/")
    # A lock of a table, and a table.
    assert f".{one}.lock" != other


@given(st.text("abcXYZ019_.$-é表 :@+=,;!&'()*{}<>\"`%", min_size=1, max_size=249))
def test_names_that_need_nothing_stay_as_they_are(name: str) -> None:
    assume(name.strip(" .") != "" and name == name.strip() and not name.endswith(".lock"))
    assume("%" not in name and len(name.encode()) <= MOST_BYTES)
    assert path_segment(name) == name


@pytest.mark.parametrize("name", ["users", "shop.orders", "a b", "größe", "a-b", "$x", "50%", "_t", "x" * 249])
def test_folders_of_lakes_of_earlier_versions_are_found(name: str) -> None:
    assert Lake("/lake").changelog(name).uri == f"/lake/changelogs/{name}"
    assert Lake("/lake").replay(name, "earliest").uri == f"/lake/replays/{name}/earliest"


@pytest.mark.parametrize("name", AWKWARD)
def test_tables_of_any_name_are_kept_and_cleaned_apart(tmp_path: Path, name: str) -> None:
    lake = Lake(str(tmp_path / "lake"))
    stores = [ChangelogStore(lake.changelog(each), declared()) for each in (name, "a", "a/b/c")]
    heads = [store.create() for store in stores]
    for store, head in zip(stores, heads, strict=True):
        assert store.append([], head=head, positions=Positions(), run="r") is not None
    assert len({head.changelog_id for head in heads}) == 3
    for number, store in enumerate(stores):
        # Compaction ends with it: files that the table does not name are deleted, at any depth.
        stray = Path(store.location.path or "", "stray.parquet")
        stray.write_bytes(b"no table names this")
        assert remove_unused(store, hours=0) == 1, number
        assert [found.batch if (found := each.head()) else None for each in stores] == [1, 1, 1]
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}
    assert {path.name for path in (tmp_path / "lake").iterdir()} == {"changelogs"}


@pytest.mark.parametrize("name", AWKWARD)
def test_every_kind_of_table_has_a_place_of_its_own(tmp_path: Path, name: str) -> None:
    lake = Lake(str(tmp_path))
    places = [lake.changelog(name), lake.refused(name), lake.query(f"{name}$query"), lake.replay(name, "earliest")]
    for place in places:
        write_table(place, pa.table({"x": [1]}), mode="append")
        assert open_table(place) is not None
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("changelogs", "refused", "queries")] == [
        "replays"
    ]
    assert RefusedStore(lake.refused(f"{name}x")).count() == 0


@pytest.mark.parametrize("name", [*AWKWARD, "users", "a b"])
def test_a_table_of_any_name_is_paused_and_resumed(tmp_path: Path, name: str) -> None:
    lake = Lake(str(tmp_path))
    pauses.pause(lake, name, reason="first")
    pauses.pause(lake, "other")
    assert {table: pause.reason for table, pause in pauses.paused(lake).items()} == {name: "first", "other": ""}
    assert pauses.resume(lake, name)
    assert (list(pauses.paused(lake)), pauses.resume(lake, name)) == (["other"], False)


def test_a_pause_of_an_earlier_version_counts_and_ends(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    (tmp_path / "paused").mkdir()
    file = tmp_path / "paused" / f"{quote('a/b c', safe='')}.json"
    file.write_text(json.dumps({"since": "2026-01-01T00:00:00+00:00", "reason": "moved"}))
    assert pauses.paused(lake)["a/b c"].reason == "moved"
    pauses.pause(lake, "a/b c", reason="still")
    assert pauses.resume(lake, "a/b c")
    assert not pauses.paused(lake)


def test_what_a_file_system_without_case_takes_for_another_table_is_named() -> None:
    assert other_case("Users", ["orders", "users"]) == "users"
    assert other_case("users", ["users", "Users"]) is None
    assert other_case("straße", ["STRASSE"]) == "STRASSE"
    assert other_case("A\u030a", ["Å"]) is None  # some file systems store names decomposed
    assert other_case("users", []) is None
    assert same_folder(["a", "b", "A", "Å", "A\u030a"]) == [("a", "A", False), ("Å", "A\u030a", True)]
