"""Ranges into changelog rows without a broker. Numbers are those of the decode cases of the connector spec."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import RecordError
from upsert_platform.kafka.sink.encode import RecordEncoder
from upsert_platform.kafka.source.decode import RULE_NO_ROW, RULE_NULL_VALUE
from upsert_platform.kafka.source.read_range import RangeReader
from upsert_platform_tests.kafka.ranges import brief, run
from upsert_platform_tests.kafka.tables import FakeRecord, declare, read, records

EXCEPT_KEY = {"value.fields-include": "EXCEPT_KEY"}


@pytest.mark.parametrize(
    ("pairs", "options", "expected"),
    [
        pytest.param(
            [('{"id":1}', '{"id":1,"name":"a"}'), ('{"id":1}', '{"id":1,"name":"b"}')],
            {},
            [("+U", 1, 1, "b")],
            id="1-last",
        ),
        pytest.param(
            [('{"id":1}', '{"id":1,"name":"a"}'), ('{"id":1}', None)], {}, [("-D", 1, 1, None)], id="6-tombstone"
        ),
        pytest.param([('{"id":9}', None)], {}, [("-D", 0, 9, None)], id="7-14-key-only-delete"),
        pytest.param([('{"id":1}', '{"name":"a"}')], EXCEPT_KEY, [("+U", 0, 1, "a")], id="except-key"),
        pytest.param([('{"id":1}', '{"id":2,"name":"a"}')], {}, [("?", 0)], id="19-R2-value-differs-from-key"),
        pytest.param(
            [('{"id":1}', '{"id":2,"name":"a"}')], {"key-conflict": "key"}, [("+U", 0, 1, "a")], id="19-R2-key-counts"
        ),
        pytest.param([('{"id":1}', '{"name":"a"}')], {}, [("+U", 0, 1, "a")], id="20-R2-absent"),
        pytest.param(
            [('{"id":1}', '{"name":"a"}')], {"key-conflict": "key"}, [("+U", 0, 1, "a")], id="20-R2-absent-key-counts"
        ),
        pytest.param([(None, '{"id":1,"name":"a"}'), (None, None)], {}, [("?", 0), ("?", 1)], id="21-R3-null-key"),
        pytest.param([("", '{"id":1,"name":"a"}')], {}, [("?", 0)], id="zero-length-key"),
        pytest.param(
            [("{}", '{"name":"a"}'), ('{"id":null}', None)], EXCEPT_KEY, [("?", 0), ("?", 1)], id="null-key-part"
        ),
        pytest.param(
            [('{"id":1,"more":2}', '{"name":"a"}'), ('{"more":2}', '{"name":"b"}'), ('{"more":2}', None)],
            EXCEPT_KEY,
            [("+U", 0, 1, "a"), ("?", 1), ("?", 2)],
            id="key-of-other-fields",
        ),
        pytest.param([('{"id":1}', "")], {}, [("?", 0)], id="23-zero-length-value"),
        pytest.param([('{"id":1}', "null")], {}, [("?", 0)], id="24-text-null"),
        pytest.param(
            [('{"id":1}', '{"id":1,')], {"value.json.ignore-parse-errors": "true"}, [("?", 0)], id="25-R1-truncated"
        ),
        pytest.param([('{"id":1}', "xx")], {"value.json.ignore-parse-errors": "true"}, [("?", 0)], id="27-garbage"),
        pytest.param(
            [('{"id":1}', '[{"name":"a"},{"name":"b"}]')],
            EXCEPT_KEY,
            [("+U", 0, 1, "a"), ("+U", 0, 1, "b")],
            id="29-array-value",
        ),
        pytest.param([('[{"id":1},{"id":2}]', None)], {}, [("-D", 0, 1, None), ("-D", 0, 2, None)], id="30-array-key"),
        pytest.param(
            [('[{"id":1},{"id":2}]', '[{"name":"a"},{"name":"b"}]')],
            EXCEPT_KEY,
            [("+U", 0, 1, "a"), ("+U", 0, 2, "a"), ("+U", 0, 1, "b"), ("+U", 0, 2, "b")],
            id="every-value-with-every-key",
        ),
        pytest.param(
            [('{"id":1}', '{"id":1,"name":"a"}'), ('{"id":1}', "xx")],
            {},
            [("+U", 0, 1, "a"), ("?", 1)],
            id="older-value",
        ),
        pytest.param(
            [('{"id":1}', None), ('{"id":1}', "xx")], {}, [("-D", 0, 1, None), ("?", 1)], id="older-tombstone"
        ),
        pytest.param(
            [('{"id":1}', "yy"), ('{"id":1}', '{"id":1,"name":"a"}'), ('{"id":1}', "xx"), ('{"id":1}', "zz")],
            {},
            [("+U", 1, 1, "a"), ("?", 2), ("?", 3)],
            id="garbage-before-a-value-is-superseded-after-it-is-not",
        ),
    ],
)
def test_reduced_rows(pairs, options, expected):
    rows, account = run(read(declare(**options)), records(*pairs))
    assert brief(rows) == expected
    assert account.records == len(pairs)


def test_value_without_rows_is_skipped_by_name_and_the_older_value_counts():
    rows, account = run(read(declare(**EXCEPT_KEY)), records(('{"id":1}', '{"name":"a"}'), ('{"id":1}', "[]")))
    assert brief(rows) == [("+U", 0, 1, "a")]
    assert account.skipped == ((RULE_NO_ROW, 1),)


def test_quarantine_keeps_the_record_as_it_is():
    record = FakeRecord(7, b'{"id":1}', b"xx", [("h", b"1"), ("h", None)])
    (row,), account = run(read(declare()), [record])
    assert (row["_raw_key"], row["_raw_value"], row["_offset"], row["_partition"]) == (b'{"id":1}', b"xx", 7, 0)
    assert row["_raw_headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert row["_timestamp"].timestamp() == 1_700_000_000
    assert row["_reason"].startswith("value:")
    assert account.gaps == 7


def test_fail_names_the_lowest_offset_and_the_reason():
    table = read(declare(**EXCEPT_KEY, **{"on-error": "fail"}))
    given_records = records(*((f'{{"id":{index}}}', "xx" if index in (3, 5) else '{"name":"a"}') for index in range(8)))
    with pytest.raises(RecordError, match=r"users-0 at offset 3 .*value: .*on-error"):
        run(table, given_records)


def test_append_keeps_every_record():
    table = read(declare(**EXCEPT_KEY))
    given_records = records(
        ('{"id":1}', '{"name":"a"}'), ('{"id":1}', '{"name":"b"}'), (None, None), ('{"id":1}', None), ('{"id":1}', "xx")
    )
    rows, account = run(table, given_records, reduces=False)
    assert brief(rows) == [("+U", 0, 1, "a"), ("+U", 1, 1, "b"), ("?", 2), ("-D", 3, 1, None), ("?", 4)]
    assert (account.kept, account.tombstones, account.superseded) == (3, 1, 0)


def test_plain_kafka_takes_null_keys_and_skips_null_values():
    table = read(declare(key=(), connector="kafka", **{"key.format": None}))
    rows, account = run(table, records((None, '{"id":1,"name":"a"}'), ("k", None)), reduces=False)
    assert brief(rows) == [("+I", 0, 1, "a")]
    assert account.skipped == ((RULE_NULL_VALUE, 1),)


def test_plain_kafka_with_key_columns():
    table = read(declare(key=(), connector="kafka", **{"key.fields": "id", "value.fields-include": "EXCEPT_KEY"}))
    given_records = records((None, '{"name":"a"}'), ('{"id":2}', '{"name":"b"}'))
    rows, _ = run(table, given_records, reduces=False)
    assert brief(rows) == [("+I", 0, None, "a"), ("+I", 1, 2, "b")]


def test_change_data_keeps_row_kinds_and_metadata_of_the_format():
    table = read(
        declare(
            key=(),
            connector="kafka",
            metadata={"o": ("BIGINT", "offset"), "db": ("STRING", "value.source.database")},
            **{"key.format": None, "value.format": "debezium-json"},
        )
    )
    source = '"source":{"db":"d"}'
    given_records = records(
        ("k", f'{{"before":null,"after":{{"id":1,"name":"a"}},"op":"c",{source}}}'),
        (
            "k",
            f'{{"before":{{"id":1,"name":"a"}},"after":{{"id":1,"name":"b"}},"op":"u",{source}}}',
        ),
        ("k", f'{{"before":{{"id":1,"name":"b"}},"after":null,"op":"d",{source}}}'),
        ("k", None),
        ("k", "xx"),
    )
    rows, account = run(table, given_records, reduces=False)
    assert [
        (row["_kind"], row["_offset"], row["_row"], row["id"], row["name"], row["o"], row["db"]) for row in rows
    ] == [
        ("+I", 0, 0, 1, "a", 0, "d"),
        ("-U", 1, 0, 1, "a", 1, "d"),
        ("+U", 1, 1, 1, "b", 1, "d"),
        ("-D", 2, 0, 1, "b", 2, "d"),
        ("?", 4, None, None, None, None, None),
    ]
    assert account.skipped == ((RULE_NULL_VALUE, 1),)
    assert (account.kept, account.rows) == (3, 4)


@pytest.mark.parametrize("fmt", ["csv", "avro", "raw"])
def test_other_formats_on_both_sides(fmt):
    """Encoded by the platform's own sink, read back by its source."""
    columns = {"id": "STRING", "name": "STRING"}
    table = read(declare(columns, **EXCEPT_KEY, **{"key.format": fmt, "value.format": fmt}))
    encoded = RecordEncoder(table).encode(
        pa.RecordBatch.from_pydict({"id": ["1", "2", "3"], "name": ["a", "b", None], "_op": ["U", "U", "D"]})
    )
    pairs = list(zip(encoded.keys.to_pylist(), encoded.values.to_pylist(), strict=True))
    assert pairs[2][1] is None
    rows, _ = run(table, records(*pairs))
    assert brief(rows) == [("+U", 0, "1", "a"), ("+U", 1, "2", "b"), ("-D", 2, "3", None)]


def test_metadata_columns_come_from_the_record_tombstones_included():
    table = read(
        declare(
            metadata={
                "t": ("STRING", "topic"),
                "p": ("INT", "partition"),
                "o": ("BIGINT", "offset"),
                "e": ("INT", "leader-epoch"),
                "at": ("TIMESTAMP(3)", "timestamp"),
                "kind": ("STRING", "timestamp-type"),
                "h": ("MAP<STRING, BYTES>", "headers"),
                "l": ("ARRAY<ROW<k STRING, v BYTES>>", "header-list"),
            }
        )
    )
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", b"2"), ("b", None)]
    given_records = [
        FakeRecord(0, b'{"id":1}', b'{"id":1,"name":"a"}', headers),
        FakeRecord(1, b'{"id":2}', None),
    ]
    first, second = run(table, given_records)[0]
    assert (first["t"], first["p"], first["o"], first["e"], first["kind"]) == ("users", 0, 0, 3, "CreateTime")
    assert first["at"].isoformat() == "2023-11-14T22:13:20"
    assert first["h"] == [("a", b"2"), ("b", None)]
    assert first["l"] == [{"k": "a", "v": b"1"}, {"k": "a", "v": b"2"}, {"k": "b", "v": None}]
    assert (second["o"], second["h"], second["l"], second["name"]) == (1, [], [], None)


_GOOD = st.sampled_from(['{"id":@,"name":"a"}', '{"id":@,"name":"b"}', '{"id":@,"name":null}', None])
_BAD = st.sampled_from(["xx", "", "null", '{"id":', '{"id":99,"name":"c"}'])
_VALUE = st.one_of(_GOOD, _GOOD, _BAD, st.just("[]"))
_KEY = st.sampled_from(['{"id":1}', '{"id":2}', '{"id": 2}', '{"id":3}', None, "xx"])
_GAP = st.integers(0, 3)


def record_at(offset: int, key: str | None, value: str | None) -> FakeRecord:
    """A record whose value has the number of its key in place of @."""
    number = (key or "").strip('{}"id: ') or "0"
    filled = None if value is None else value.replace("@", number).encode()
    return FakeRecord(offset, None if key is None else key.encode(), filled)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(_KEY, _VALUE, _GAP), max_size=40), st.integers(1, 12))
def test_any_history_ends_in_the_last_decodable_value_of_each_key(history, piece):
    given_records, offset = [], 0
    for key, value, gap in history:
        offset += gap
        given_records.append(record_at(offset, key, value))
        offset += 1
    rows, account = run(read(declare()), given_records, piece=piece, end=offset + 1)
    assert account.records == len(given_records)
    assert account.gaps == offset + 1 - len(given_records)

    bad = {"xx", "", "null", '{"id":', '{"id":99,"name":"c"}'}
    keys = {key for key, _, _ in history if key not in (None, "xx")}
    changes, quarantined, skipped = set(), set(), 0
    for record in given_records:
        if record.key() in (None, b"xx"):
            # A null key replaces nothing; a broken one is replaced by the same bytes only if it is not quarantined.
            quarantined.add(record.offset())
    for key in keys:
        of_key = [record for record in given_records if record.key() == key.encode()]
        last = max(
            (r.offset() for r in of_key if r.value() is None or r.value().decode() not in {*bad, "[]"}), default=-1
        )
        changes |= {last} - {-1}
        later = [r for r in of_key if r.offset() > last]
        quarantined |= {r.offset() for r in later if r.value() is not None and r.value().decode() in bad}
        skipped += sum(r.value() == b"[]" for r in later)
    assert {row["_offset"] for row in rows if row["_kind"] != "?"} == changes
    assert {row["_offset"] for row in rows if row["_kind"] == "?"} == quarantined
    assert account.skipped_total == skipped
    assert account.kept == len(changes)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_KEY, _VALUE), min_size=1, max_size=300), st.integers(1, 50))
def test_a_small_buffer_changes_neither_values_nor_sums(history, piece):
    given_records = [record_at(offset, key, value) for offset, (key, value) in enumerate(history)]
    whole, _ = run(read(declare()), given_records, piece=piece)
    parted_table = read(declare(**{"scan.buffer-bytes": "64 kb"}))
    parted, account = run(parted_table, given_records, piece=piece)
    assert account.records == len(given_records)

    def final(rows: list[dict]) -> dict[int, tuple]:
        return {row["id"]: (row["_kind"], row["_offset"], row["name"]) for row in rows if row["_kind"] != "?"}

    assert final(parted) == final(whole)


def test_a_full_buffer_is_handed_on_and_everything_is_counted():
    table = read(declare(**EXCEPT_KEY, **{"scan.buffer-bytes": "64 kb"}))
    pairs = [(f'{{"id":{index % 1500}}}', f'{{"name":"{"x" * 100}-{index}"}}') for index in range(3000)]
    rows, account = run(table, records(*pairs), piece=100)
    assert account.kept == len(rows) > 1500
    last = {row["id"]: row["name"] for row in rows}
    assert all(last[index % 1500].endswith(f"-{index}") for index in range(1500, 3000))


def test_a_reason_that_quotes_half_a_character_is_kept() -> None:
    table = read(declare({"id": "INT", "name": "INT"}))
    rows, account = run(table, records(('{"id":1}', '{"name":"\\ud800"}'), ('{"id":2}', '{"name":2}')))
    assert brief(rows) == [("?", 0), ("+U", 1, 2, 2)]
    assert "\\ud800" in rows[0]["_reason"]
    assert account.quarantined == 1


@pytest.mark.parametrize(
    ("time", "stored"),
    [(253_402_300_799_999, 253_402_300_799_999_000), (1_700_000_000_000_000, 253_402_300_799_999_000),
     (1_700_000_000_000_000_000, 253_402_300_799_999_000)],
    ids=["milliseconds", "microseconds", "nanoseconds"],
)  # fmt: skip
def test_times_of_other_units_are_neither_turned_over_nor_shown_as_another_time(time: int, stored: int) -> None:
    """Producers set times; what no column holds is kept aside, and orders records as the last moment does."""
    only = [FakeRecord(0, b'{"id":1}', b'{"id":1,"name":"a"}', _time=time)]
    for metadata in (None, {"at": ("TIMESTAMP_LTZ(3)", "timestamp")}):
        table = read(declare(metadata=metadata, virtual=True))
        reader = RangeReader(table, reduces=True, fetch=lambda wanted: iter([only]))
        found = pa.Table.from_batches(list(reader.read(OffsetRange("users", 0, 0, 1)))).slice(0, 1)
        assert found.column("_timestamp").cast(pa.int64()).to_pylist() == [stored]
        fits = metadata is None or time * 1000 < 2**63
        assert found.column("_kind").to_pylist() == ["+U" if fits else "?"]
        if metadata and fits:
            assert found.column("at").cast(pa.int64()).to_pylist() == [time * 1000]
        elif metadata:
            assert found.column("_reason").to_pylist() == [
                f"timestamp: {time} ms since 1970 are more than column 'at' holds"
            ]
