"""Source, decode and normalise: behaviours 1 to 33.

The catalogue tells a retract stream; here it is replayed into a table, which must be the one that the platform's upsert
stream gives, record by record and reduced, wherever batches end.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from upsert_platform.changelog import rows as changelog
from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.changelog.rows import PARTITIONS_MET
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Column, ColumnKind, Insert, Options, Table
from upsert_platform.core.types import parse_type
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.sync.transform import change_query
from upsert_platform_tests.kafka.catalogue.cases import behaviour, case
from upsert_platform_tests.kafka.ranges import brief, run
from upsert_platform_tests.kafka.tables import FakeRecord, declare, read, records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXCEPT_KEY: Final = {"value.fields-include": "EXCEPT_KEY"}
IGNORE: Final = {"value.json.ignore-parse-errors": "true"}
PLACE: Final = SourceLocation("case.sql", 1)
Pair = tuple[str | None, str | None]
Events = Sequence[tuple[Any, ...]]


def put(key: int, name: str | None) -> Pair:
    text = "null" if name is None else f'"{name}"'
    return f'{{"id":{key}}}', f'{{"id":{key},"name":{text}}}'


def drop(key: int) -> Pair:
    return f'{{"id":{key}}}', None


def table_of(events: Events) -> dict[Any, Any]:
    """The table that a stream of (kind, key, name) ends in."""
    found: dict[Any, Any] = {}
    for kind, key, name in events:
        if kind in ("+I", "+U"):
            found[key] = name
        elif kind == "-D":
            found.pop(key, None)
    return found


@pytest.mark.parametrize(
    ("pairs", "expected", "upserts"),
    [
        case(
            1,
            "second-value",
            [put(1, "a"), put(1, "b")],
            [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b")],
            [("+U", 1, "a"), ("+U", 1, "b")],
        ),
        case(
            6,
            "tombstone",
            [put(1, "a"), drop(1)],
            [("+I", 1, "a"), ("-D", 1, "a")],
            [("+U", 1, "a"), ("-D", 1, None)],
        ),
        case(7, "tombstone-of-an-unknown-key", [drop(9)], [], [("-D", 9, None)]),
        case(
            8,
            "two-tombstones",
            [put(1, "a"), drop(1), drop(1)],
            [("+I", 1, "a"), ("-D", 1, "a")],
            [("+U", 1, "a"), ("-D", 1, None), ("-D", 1, None)],
        ),
        case(
            9,
            "written-again",
            [put(1, "a"), drop(1), put(1, "a")],
            [("+I", 1, "a"), ("-D", 1, "a"), ("+I", 1, "a")],
            [("+U", 1, "a"), ("-D", 1, None), ("+U", 1, "a")],
        ),
        case(
            10,
            "repeated-value",
            [put(1, "a"), put(1, "a"), put(1, "b")],
            [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b")],
            [("+U", 1, "a"), ("+U", 1, "a"), ("+U", 1, "b")],
        ),
        case(
            12,
            "null-columns",
            [put(1, None), put(1, None), put(1, "a"), drop(1)],
            [("+I", 1, None), ("-U", 1, None), ("+U", 1, "a"), ("-D", 1, "a")],
            [("+U", 1, None), ("+U", 1, None), ("+U", 1, "a"), ("-D", 1, None)],
        ),
        case(
            13,
            "interleaved",
            [put(1, "a"), put(2, "x"), put(1, "b"), drop(2), put(3, "q"), drop(1)],
            [
                *[("+I", 1, "a"), ("+I", 2, "x"), ("-U", 1, "a"), ("+U", 1, "b")],
                *[("-D", 2, "x"), ("+I", 3, "q"), ("-D", 1, "b")],
            ],
            [("+U", 1, "a"), ("+U", 2, "x"), ("+U", 1, "b"), ("-D", 2, None), ("+U", 3, "q"), ("-D", 1, None)],
        ),
        case(
            14,
            "no-normaliser",
            [drop(9), put(1, "a"), put(1, "a"), put(1, "b"), drop(1)],
            [("-D", 9, None), ("+I", 1, "a"), ("+I", 1, "a"), ("+I", 1, "b"), ("-D", 1, None)],
            [("-D", 9, None), ("+U", 1, "a"), ("+U", 1, "a"), ("+U", 1, "b"), ("-D", 1, None)],
        ),
        case(
            15,
            "one-bundle",
            [put(1, "a"), drop(1), put(2, "x"), put(2, "y")],
            [("+I", 2, "y")],
            [("+U", 1, "a"), ("-D", 1, None), ("+U", 2, "x"), ("+U", 2, "y")],
        ),
    ],
)
def test_the_upsert_stream_ends_in_the_same_table(pairs: list[Pair], expected: Events, upserts: Events) -> None:
    table, given = read(declare()), records(*pairs)
    every, _ = run(table, given, reduces=False)
    assert [(kind, key, name) for kind, _, key, name in brief(every)] == upserts
    assert table_of(upserts) == table_of(expected)
    for end in range(len(given) + 1):  # two batches, wherever the first one ends
        parts = [run(table, part)[0] for part in (given[:end], given[end:])]
        reduced = [(kind, key, name) for part in parts for kind, _, key, name in brief(part)]
        assert table_of(reduced) == table_of(expected)
        assert all(len({row["id"] for row in part}) == len(part) for part in parts)


def test_a_bundle_keeps_a_delete_for_what_earlier_batches_wrote() -> None:
    """Number 15 again: a key that is inserted and deleted in one batch may be in the table from before."""
    rows, _ = run(read(declare()), records(put(1, "a"), drop(1), put(2, "x"), put(2, "y")))
    assert brief(rows) == [("-D", 1, 1, None), ("+U", 3, 2, "y")]


@pytest.mark.parametrize(
    ("pairs", "options", "expected"),
    [
        case(19, "value-contradicts-the-key", [('{"id":1}', '{"id":2,"name":"a"}')], {}, [("?", 0)]),
        case(19, "tombstone-deletes-its-own-key", [put(2, "a"), drop(1)], {}, [("+U", 0, 2, "a"), ("-D", 1, 1, None)]),
        case(20, "value-lacks-the-key", [('{"id":1}', '{"name":"a"}')], {}, [("+U", 0, 1, "a")]),
        case(20, "absent-or-unreadable", [('{"id":1}', '{"name":"a"}')], IGNORE, [("?", 0)]),
        case(20, "copy-is-null", [('{"id":1}', '{"id":null,"name":"a"}')], {}, [("+U", 0, 1, "a")]),
        case(20, "the-key-counts", [('{"id":1}', '{"name":"a"}')], {"key-conflict": "key"}, [("+U", 0, 1, "a")]),
        case(21, "null-key-json", [(None, '{"id":1,"name":"a"}'), (None, None)], {}, [("?", 0), ("?", 1)]),
        case(21, "null-key-csv", [(None, '{"id":1,"name":"a"}')], {"key.format": "csv"}, [("?", 0)]),
        case(21, "null-key-avro", [(None, '{"id":1,"name":"a"}')], {"key.format": "avro"}, [("?", 0)]),
        case(23, "zero-bytes", [put(1, "a"), ('{"id":1}', "")], {}, [("+U", 0, 1, "a"), ("?", 1)]),
        case(24, "text-null", [put(1, "a"), ('{"id":1}', "null")], {}, [("+U", 0, 1, "a"), ("?", 1)]),
        case(24, "text-null-ignored", [put(1, "a"), ('{"id":1}', "null")], IGNORE, [("+U", 0, 1, "a"), ("?", 1)]),
        case(
            25, "cut-off-is-no-delete", [put(1, "a"), ('{"id":1}', '{"id":1,')], IGNORE, [("+U", 0, 1, "a"), ("?", 1)]
        ),
        case(26, "null-in-an-array", [('{"id":1}', '[{"name":"a"},null]')], {**EXCEPT_KEY, **IGNORE}, [("?", 0)]),
        case(27, "garbage", [('{"id":1}', "xx")], IGNORE, [("?", 0)]),
        case(28, "field-error-in-the-key", [('{"id":1}', '{"id":"x","name":"a"}')], IGNORE, [("?", 0)]),
        case(
            29,
            "array-of-rows",
            [('{"id":1}', '[{"id":1,"name":"a"},{"id":1,"name":"b"}]')],
            {},
            [("+U", 0, 1, "a"), ("+U", 0, 1, "b")],
        ),
        case(29, "each-with-its-key", [('{"id":1}', '[{"id":1,"name":"a"},{"id":2,"name":"b"}]')], {}, [("?", 0)]),
        case(30, "array-of-keys", [('[{"id":1},{"id":2}]', None)], {}, [("-D", 0, 1, None), ("-D", 0, 2, None)]),
    ],
)
def test_records_of_their_own_kind(pairs: list[Pair], options: dict[str, str], expected: list[Any]) -> None:
    rows, account = run(read(declare(**options)), records(*pairs))
    assert brief(rows) == expected
    assert account.records == len(pairs)


@pytest.mark.parametrize("value", [case(22, "value", '{"name":"a"}'), case(22, "tombstone", None)])
def test_a_null_key_of_a_raw_format(value: str | None) -> None:
    """A primary key is never null: what has none is kept aside, in every format."""
    table = read(declare({"id": "STRING", "name": "STRING"}, **EXCEPT_KEY, **{"key.format": "raw"}))
    (row,), _ = run(table, records((None, value)))
    assert (row["_kind"], row["_raw_value"]) == ("?", value and value.encode())


@behaviour(4, "composite-key")
def test_a_composite_key() -> None:
    columns = {"user_id": "BIGINT", "name": "STRING", "event_id": "BIGINT", "payload": "STRING"}
    table = read(declare(columns, key=("event_id", "user_id"), metadata={"at": ("TIMESTAMP_LTZ(3)", "timestamp")}))
    given = []
    for offset, (user, event) in enumerate([(1, 100), (2, 101), (3, 102), (1, 100)]):
        value = f'{{"user_id":{user},"name":"n{user}","event_id":{event},"payload":"p{offset + 1}"}}'
        given.append(
            FakeRecord(offset, f'{{"event_id":{event},"user_id":{user}}}'.encode(), value.encode(), None, 1000 + offset)
        )
    every, _ = run(table, given, reduces=False)
    shown = [(row["_kind"], row["event_id"], row["user_id"], row["payload"], _millis(row["at"])) for row in every]
    assert shown == [
        ("+U", 100, 1, "p1", 1000),
        ("+U", 101, 2, "p2", 1001),
        ("+U", 102, 3, "p3", 1002),
        ("+U", 100, 1, "p4", 1003),
    ]
    last, _ = run(table, given)
    kept = {(row["event_id"], row["user_id"]): (row["payload"], _millis(row["at"])) for row in last}
    assert kept == {(100, 1): ("p4", 1003), (101, 2): ("p2", 1001), (102, 3): ("p3", 1002)}


def _millis(at: Any) -> int:
    return round(at.timestamp() * 1000)


@behaviour(5, "same-name-in-key-and-value")
def test_a_prefixed_key() -> None:
    columns = {"k_user_id": "BIGINT", "name": "STRING", "k_event_id": "BIGINT", "user_id": "INT", "payload": "STRING"}
    table = read(declare(columns, key=("k_event_id", "k_user_id"), **EXCEPT_KEY, **{"key.fields-prefix": "k_"}))
    value = '{"name":"n1","user_id":41,"payload":"p1"}'
    (row,), _ = run(table, records(('{"event_id":100,"user_id":1}', value)))
    assert [row[name] for name in columns] == [1, "n1", 100, 41, "p1"]


def changes_of(
    spark: SparkSession, table: KafkaTable, given: Sequence[FakeRecord], predicate: str | None, *, name: str = "name"
) -> DataFrame:
    """Every record as the change that an insert with a predicate makes of it, ordered by its `_seq`."""
    every, _ = run(table, given, reduces=False)
    stored = [column.name for column in changelog.stored_columns(table.table)]
    data = [(row["_kind"], row["_offset"], *(row[column] for column in stored)) for row in every]
    ddl = [f"`{c.name}` {c.type}" for c in changelog.stored_columns(table.table)]
    types = ", ".join(part.replace("TIMESTAMP_LTZ(3)", "TIMESTAMP") for part in ddl)
    spark.createDataFrame(data, f"_kind STRING, _seq BIGINT, {types}").createOrReplaceTempView("case_changes")
    target = declare()
    insert = Insert("users", "users", ("`id`", f"`{name}`"), predicate, "", PLACE)
    return spark.sql(change_query(insert, table.table, target, "case_changes")).orderBy("_seq")


@pytest.mark.parametrize(
    ("pairs", "predicate", "expected", "upserts"),
    [
        case(
            16,
            "leaving-and-coming-back",
            [put(1, "a"), put(1, "b"), put(1, "c"), drop(1)],
            "`name` <> 'b'",
            [("+I", 1, "a"), ("-D", 1, "a"), ("+I", 1, "c"), ("-D", 1, "c")],
            [("U", 1, "a"), ("D", 1, None), ("U", 1, "c"), ("D", 1, None)],
        ),
        case(
            17,
            "coming-and-leaving",
            [put(1, "a"), put(1, "b"), put(1, "c"), drop(1)],
            "`name` = 'b'",
            [("+I", 1, "b"), ("-D", 1, "b")],
            [("D", 1, None), ("U", 1, "b"), ("D", 1, None), ("D", 1, None)],
        ),
        case(
            18,
            "on-the-key",
            [put(1, "a"), put(2, "b"), put(1, "c"), drop(1)],
            "`id` = 1",
            [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "c"), ("-D", 1, "c")],
            [("U", 1, "a"), ("D", 2, None), ("U", 1, "c"), ("D", 1, None)],
        ),
    ],
)
def test_a_filtered_insert(
    spark: SparkSession, pairs: list[Pair], predicate: str, expected: Events, upserts: Events
) -> None:
    found = changes_of(spark, read(declare()), records(*pairs), predicate).collect()
    assert [(row._op, row.id, row.name) for row in found] == upserts
    kinds = {"U": "+U", "D": "-D"}
    assert table_of([(kinds[kind], key, name) for kind, key, name in upserts]) == table_of(expected)


@behaviour(31, "computed-and-metadata-columns")
def test_a_users_changelog(spark: SparkSession) -> None:
    keys = [100, 101, 102, 103, 104, 105, 100, 101, 101, 104, 105]
    given = [
        FakeRecord(at, f'{{"id":{key}}}'.encode(), f'{{"id":{key},"name":"u{at}"}}'.encode(), None, 60_000 * at + 1000)
        for at, key in enumerate(keys)
    ]
    declared = declare()
    columns = (
        *declared.columns,
        Column("at", parse_type("TIMESTAMP_LTZ(3)"), kind=ColumnKind.METADATA, metadata_key="timestamp"),
        Column("loud", None, kind=ColumnKind.COMPUTED, expression="UPPER(`name`)"),
    )
    table = read(Table("users", columns, ("id",), Options(declared.options), PLACE))
    found = changes_of(spark, table, given, None, name="loud").collect()
    assert [(row._op, row.id, row.name) for row in found] == [("U", key, f"U{at}") for at, key in enumerate(keys)]
    every, _ = run(table, given, reduces=False)
    assert [_millis(row["at"]) for row in every] == [60_000 * at + 1000 for at in range(len(keys))]
    last, account = run(table, given)
    assert {row["id"]: row["name"] for row in last} == {
        100: "u6",
        101: "u8",
        102: "u2",
        103: "u3",
        104: "u9",
        105: "u10",
    }
    assert account.superseded == 5  # as many pairs of -U and +U as the catalogue tells, behind six +I


@behaviour(33, "time-decides-between-partitions")
def test_a_key_in_two_partitions(spark: SparkSession) -> None:
    """Undefined elsewhere; here by the times of the last records of each partition, counted and warned of."""
    ddl = (
        "_batch BIGINT, _kind STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, _row INT,"
        " id INT, name STRING"
    )
    late, early = datetime(2024, 5, 1, 12, tzinfo=UTC), datetime(2024, 5, 1, 11, tzinfo=UTC)
    rows = [
        (1, "+U", "t", 0, 5, late, 0, 1, "a"),
        (1, "+U", "t", 1, 9, early, 0, 1, "b"),
        (1, "+U", "t", 0, 6, early, 0, 2, "only"),
        (1, "+U", "t", 0, 7, late, 0, 3, "overtaken by the next offset"),
        (1, "+U", "t", 0, 8, early - timedelta(1), 0, 3, "a day behind"),
        (1, "+U", "t", 1, 10, early, 0, 3, "c"),
    ]
    found = latest_per_key(spark.createDataFrame(rows, ddl), key=["id"], columns=["id", "name"]).collect()
    assert {row.id: (row.name, row[PARTITIONS_MET]) for row in found} == {1: ("a", 2), 2: ("only", 1), 3: ("c", 2)}
