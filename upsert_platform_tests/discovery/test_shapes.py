"""What is inferred of samples, without a broker: every record of a sample decodes to what was written."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from upsert_platform.core.errors import DeclarationError
from upsert_platform.discovery.change_shape import mysql_type
from upsert_platform.discovery.discover import Discovery, discover_topic, matching
from upsert_platform.discovery.sample import Record, Sample
from upsert_platform.discovery.side_shape import side_of
from upsert_platform.discovery.table import Cluster, check_names, table_name
from upsert_platform.formats import build_decoder

CLUSTER = Cluster("localhost:1")
NAMES = st.text("abcdefghij_ÄßK-. '\"`0", min_size=1, max_size=6).filter(
    lambda name: name.strip() and not name.startswith("__upsert")
)


def found_of(*records: tuple[bytes | None, bytes | None], compacted: bool = True, **more: Any) -> Discovery:
    rows = tuple(Record(key, value, 0, offset) for offset, (key, value) in enumerate(records))
    sample = Sample("t", rows, 1, len(rows), compacted)
    return discover_topic(sample, CLUSTER, variables={}, **more)


def columns(found: Discovery) -> dict[str, str]:
    return {column.name: str(column.type) for column in found.table.columns}


def types_of(*values: Any) -> str:
    """Type that is found for a field with values, given as JSON texts where they are str."""
    messages = [b'{"x":%s}' % (value if isinstance(value, bytes) else json.dumps(value).encode()) for value in values]
    return str(side_of(messages, side="value").columns[0].type)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ((1, -5, 1 << 62), "BIGINT"),
        ((1, 1 << 63), "DECIMAL(38, 0)"),
        ((10**40,), "STRING"),
        ((True, None, False), "BOOLEAN"),
        ((1.5, 2), "DOUBLE"),
        ((b"1.5e300",), "DOUBLE"),
        ((b"1234567890123456.78",), "DECIMAL(38, 2)"),
        (("12.50", "-0.1"), "DECIMAL(38, 2)"),
        (("007", "12"), "STRING"),
        (("1.5", "1.5.1"), "STRING"),
        (("2024-02-29", "1970-01-01"), "DATE"),
        (("2023-02-29",), "STRING"),
        (("12:00:00", "23:59:59"), "TIME(0)"),
        (("12:00:00.5",), "STRING"),
        (("2024-02-29 01:02:03", "2024-02-29 01:02:03.123"), "TIMESTAMP(3)"),
        (("2024-02-29 01:02:03.123456",), "TIMESTAMP(6)"),
        (("2024-02-29 01:02:03.123456789",), "STRING"),
        (("2024-02-29T01:02:03",), "TIMESTAMP(3)"),
        (("2024-02-29T01:02:03Z",), "TIMESTAMP_LTZ(3)"),
        (("2024-02-29 01:02:03Z",), "TIMESTAMP_LTZ(3)"),
        (("2024-02-29T01:02:03+08:00",), "STRING"),
        (("2024-02-29T01:02:03", "2024-02-29 01:02:03"), "STRING"),
        (([1, 2], [], None), "ARRAY<BIGINT>"),
        (([], None), "ARRAY<STRING>"),
        (([[1], [2.5]],), "ARRAY<ARRAY<DOUBLE>>"),
        (({"a": 1, "b": "x"}, {"a": 2}), "ROW<`a` BIGINT, `b` STRING>"),
        (({"1": "a"}, {"2": "b"}), "MAP<STRING, STRING>"),
        (({},), "MAP<STRING, STRING>"),
        ((None,), "STRING"),
        ((1, "x"), "STRING"),
        (([1], {"a": 1}), "STRING"),
    ],
)
def test_type_of_a_field_follows_from_its_values(values: tuple[Any, ...], wanted: str) -> None:
    assert types_of(*values) == wanted


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "whole": st.integers(-(1 << 63), (1 << 63) - 1),
    "flag": st.booleans(),
    "text": st.text(max_size=8).map(lambda text: f"t{text}"),
    "date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "at": st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),  # noqa: DTZ001 - no zone
    "number": st.floats(-1e15, 1e15, allow_nan=False).map(lambda number: number + 0.5),
    "money": st.decimals(-(10**9), 10**9, places=3),
}


def written(value: Any) -> Any:
    """What a producer makes of a value, before `json.dumps`."""
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, list):
        return [written(item) for item in value]
    if isinstance(value, dict):
        return {name: written(item) for name, item in value.items()}
    return value


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of some columns, each of one kind: scalars, arrays, or objects of them; some are null or missing."""
    kinds = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=5, unique_by=str.lower)):
        scalar = SCALARS[draw(st.sampled_from(sorted(SCALARS)))]
        kinds[name] = draw(
            st.sampled_from([scalar, st.lists(scalar, max_size=3), st.fixed_dictionaries({"f": scalar})])
        )
    row = st.fixed_dictionaries({}, optional={name: st.none() | kind for name, kind in kinds.items()})
    return draw(st.lists(row, min_size=1, max_size=8).filter(lambda rows: any(rows)))


@settings(max_examples=150, deadline=None)
@given(tables())
def test_rows_come_back_as_they_were_written(rows: list[dict[str, Any]]) -> None:
    messages = [json.dumps(written(row)).encode() for row in rows]
    found = side_of(messages, side="value")
    assert found.format == "json"
    assert not [doubt for doubt in found.doubts if "left out" in doubt]
    declared = [(column.name, column.type) for column in found.columns]
    decoded = build_decoder("json", declared, dict(found.options)).decode(messages)
    assert decoded.errors == {}
    for row, read in zip(rows, decoded.rows.to_pylist(), strict=True):
        assert {name: value for name, value in read.items() if value is not None} == {
            name: value for name, value in row.items() if value is not None
        }


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=6), st.sampled_from(["key", "value"]))
@example([b"\r|"], "key")
@example([b"a,b\nc,d\n"], "value")
def test_whatever_the_bytes_are_every_record_decodes(messages: list[bytes], side: Any) -> None:
    found = side_of(messages, side=side)
    declared = [(column.name, column.type) for column in found.columns]
    assert build_decoder(found.format, declared, dict(found.options)).decode(messages).errors == {}


def test_a_key_without_a_name_has_that_of_the_field_that_repeats_it() -> None:
    found = found_of((b"c-1", b'{"customer":"c-1","name":"ann"}'), (b"c-2", b'{"customer":"c-2","name":"c-2"}'))
    assert found.table.primary_key == ("customer",)
    assert found.table.options["key.format"] == "raw"
    assert "value.fields-include" not in found.table.options
    assert (found.proof.decoded, found.proof.problems, found.doubts) == (2, (), [])


@pytest.mark.parametrize(
    ("key", "value", "primary", "more"),
    [
        (b"c-1", b'{"name":"ann"}', ("key",), {"key.format": "raw", "value.fields-include": "EXCEPT_KEY"}),
        (b"7", b'{"name":"ann"}', ("key",), {"key.format": "csv", "value.fields-include": "EXCEPT_KEY"}),
        (b"007", b'{"name":"ann"}', ("key",), {"key.format": "raw"}),
        (b'{"id":7}', b'{"id":7,"n":1}', ("id",), {"key.format": "json", "value.format": "json"}),
        (b'{"id":7}', b'{"id":8}', ("key_id",), {"key.fields-prefix": "key_", "value.fields-include": "EXCEPT_KEY"}),
        (b'{"a":1,"b":"x"}', b'{"n":1}', ("a", "b"), {"value.fields-include": "EXCEPT_KEY"}),
        ((7).to_bytes(8, "big"), b'{"n":1}', ("key",), {"key.format": "raw"}),
        (b"7;eu", b'{"n":1}', ("key_1", "key_2"), {"key.format": "csv", "key.csv.field-delimiter": ";"}),
        (b"k", b"1,2", ("key",), {"value.format": "csv"}),
        (b"k", b"plain text", ("key",), {"value.format": "raw"}),
        (b"k", b"\xff\xfe\x00", ("key",), {"value.format": "raw"}),
    ],
)
def test_keys_of_every_form(key: bytes, value: bytes, primary: tuple[str, ...], more: dict[str, str]) -> None:
    found = found_of((key, value), (key, None))
    assert found.table.primary_key == primary
    assert more.items() <= found.table.options.items()
    assert (found.proof.decoded, found.proof.refused, found.proof.problems) == (2, {}, ())


def test_topic_without_keys_is_read_as_events_by_their_places() -> None:
    found = found_of(
        (None, b'{"a":1}'), (None, b'{"a":2}'), to=["tablestore", "maxcompute", "postgres", "upsert-kafka"]
    )
    assert found.table.options["connector"] == "kafka"
    assert found.proof.problems == ()
    assert found.text.count("PRIMARY KEY (`kafka_partition`, `kafka_offset`) NOT ENFORCED") == 4
    assert "'connector' = 'postgres'" in found.text
    assert f"'table-name' = '{found.table.name}_postgres'" in found.text


@pytest.mark.parametrize(
    ("form", "value", "key"),
    [
        ("debezium-json", {"before": None, "after": {"id": 1, "n": "x"}, "op": "c", "ts_ms": 5}, b'{"id":1}'),
        (
            "debezium-json",
            {"schema": {}, "payload": {"before": {"id": 1, "n": "x"}, "after": {"id": 1, "n": "y"}, "op": "u"}},
            b'{"schema":{},"payload":{"id":1}}',
        ),
        (
            "canal-json",
            {
                "data": [{"id": "1", "n": "x"}],
                "old": None,
                "type": "INSERT",
                "isDdl": False,
                "pkNames": ["id"],
                "database": "d",
                "table": "t",
                "mysqlType": {"id": "bigint(20)", "n": "varchar(9)"},
            },
            None,
        ),
        (
            "maxwell-json",
            {
                "database": "d",
                "table": "t",
                "type": "insert",
                "data": {"id": 1, "n": "x"},
                "primary_key_columns": ["id"],
            },
            None,
        ),
        ("ogg-json", {"table": "t", "op_type": "I", "after": {"id": 1, "n": "x"}, "primary_keys": ["id"]}, None),
    ],
)
def test_change_data_is_known_by_its_form(form: str, value: dict[str, Any], key: bytes | None) -> None:
    found = found_of((key, json.dumps(value).encode()), compacted=False)
    assert found.table.options["format"] == form
    assert columns(found) == {"id": "BIGINT", "n": "STRING"}
    assert found.table.primary_key == ("id",)
    assert (found.proof.decoded, found.proof.refused, found.proof.problems) == (1, {}, ())


@pytest.mark.parametrize(
    ("key", "lacking"),
    [
        (b'{"id":1,"__dbz__physicalTableIdentifier":"shard2.orders"}', "'__dbz__physicalTableIdentifier' of the key"),
        (b"1", "the primary key of the rows is not known"),
    ],
)
def test_a_part_of_a_key_is_no_primary_key_of_changes(key: bytes, lacking: str) -> None:
    """Debezium's ByLogicalTableRouter tells rows of shards apart by a field that the rows themselves lack."""
    value = {"before": None, "after": {"id": 1, "key": "x"}, "op": "c", "ts_ms": 5}
    found = found_of((key, json.dumps(value).encode()), compacted=False)
    assert found.table.primary_key == ()
    assert any(lacking in doubt for doubt in found.doubts), found.doubts


@pytest.mark.parametrize(
    ("text", "wanted", "sure"),
    [
        ("bigint(20)", "BIGINT", True), ("bigint(20) unsigned", "DECIMAL(20, 0)", True),
        ("decimal(10,2)", "DECIMAL(10, 2)", True), ("decimal(10, 2)", "DECIMAL(10, 2)", True),
        ("DECIMAL ( 12 , 4 ) unsigned", "DECIMAL(12, 4)", True), ("numeric(5)", "DECIMAL(5, 0)", True),
        ("decimal", "DECIMAL(38, 18)", False), ("decimal unsigned", "DECIMAL(38, 18)", False),
        ("decimal(65,30)", "STRING", False), ("datetime", "TIMESTAMP(6)", False), ("timestamp", "TIMESTAMP(6)", False),
        ("datetime(0)", "TIMESTAMP(3)", True), ("timestamp(6)", "TIMESTAMP(6)", True), ("date", "DATE", True),
        ("varchar(9)", "STRING", True), ("double", "DOUBLE", True), ("bigint unsigned", "DECIMAL(20, 0)", True),
    ],
)  # fmt: skip
def test_types_that_canal_tells(text: str, wanted: str, sure: bool) -> None:
    found = mysql_type(text)
    assert found is not None
    assert (str(found.type), not found.doubt) == (wanted, sure)


@pytest.mark.parametrize(
    ("amount", "wanted"),
    [
        ("12.34", Decimal("12.34")), ("99999999999999999999.123456789012345678", None), (None, None),
        ("100000000000000000000.5", "100000000000000000000.5"), ("0.1234567890123456789", "0.1234567890123456789"),
    ],
)  # fmt: skip
def test_amounts_of_a_type_without_digits_are_read_as_they_are(
    amount: str | None, wanted: Decimal | str | None
) -> None:
    """TiCDC tells 'decimal' of a DECIMAL(10, 2), and 'datetime' of a DATETIME(6)."""
    row = {"id": "1", "amount": amount, "at": "2024-02-29 01:02:03.123456"}
    value = {"data": [row], "old": None, "type": "INSERT", "isDdl": False, "pkNames": ["id"]}
    value["mysqlType"] = {"id": "bigint", "amount": "decimal", "at": "datetime"}
    message = json.dumps(value).encode()
    found = found_of((None, message), compacted=False)
    kinds = [(column.name, column.type) for column in found.table.columns]
    (read,) = build_decoder("canal-json", kinds, {}).decode([message]).rows.to_pylist()
    assert read["amount"] == (Decimal(amount) if wanted is None and amount else wanted)
    assert str(read["at"]) == "2024-02-29 01:02:03.123456"
    assert {column.name for column in found.table.columns if column.doubt} == {"amount", "at"}
    assert found.text.count("without its digits") == 1


def test_what_may_be_meant_otherwise_is_a_comment_at_its_column() -> None:
    found = found_of((b"1", b'{"id":1,"at":1700000000000,"never":null,"mixed":1}'), (b"2", b'{"id":2,"mixed":"x"}'))
    lines = found.text.splitlines()
    for name, told in {"at": "milliseconds since 1970", "never": "always null", "mixed": "several kinds"}.items():
        place = next(at for at, line in enumerate(lines) if line.startswith(f"  `{name}` "))
        assert told in lines[place - 1]


def test_few_broken_records_are_told_and_the_others_declared() -> None:
    found = found_of(*[(b"%d" % n, b'{"n":%d}' % n) for n in range(1, 20)], (b"20", b"{broken"))
    assert found.table.options["value.format"] == "json"
    assert (found.proof.decoded, sum(found.proof.refused.values())) == (19, 1)
    assert any("1 of 20 values are no JSON objects" in doubt for doubt in found.doubts)


def test_names_that_differ_in_case_alone_and_hostile_names_stay_apart() -> None:
    found = found_of((b"k", b'{"Id":1,"id":2,"a`b":3,"--x":"y"}'))
    assert columns(found) == {"key": "STRING", "Id": "BIGINT", "a`b": "BIGINT", "--x": "STRING"}
    assert any("differs from 'Id' in case alone" in doubt for doubt in found.doubts)
    assert (found.proof.decoded, found.proof.problems) == (1, ())


def test_names_of_topics_and_patterns() -> None:
    assert table_name("shop.orders-v2") == "shop_orders_v2"
    assert matching(["shop.a", "shop.b", "other"], "shop.*") == ["shop.a", "shop.b"]


def test_topics_that_would_be_one_table_are_refused_by_name() -> None:
    check_names(["shop.orders", "shop.orders.eu", "users"])
    with pytest.raises(DeclarationError, match=r"topics 'orders-eu', 'orders\.eu' would all be table 'orders_eu'"):
        check_names(["users", "orders-eu", "orders.eu"])


def test_microseconds_and_zones_are_read_as_they_are_written() -> None:
    at = datetime(2024, 2, 29, 1, 2, 3, 120_000, tzinfo=UTC)
    texts = [(at + timedelta(days=day)).strftime("%Y-%m-%dT%H:%M:%S.%fZ") for day in range(3)]
    found = found_of(*[(b"%d" % n, json.dumps({"at": text}).encode()) for n, text in enumerate(texts)])
    assert columns(found)["at"] == "TIMESTAMP_LTZ(6)"
    assert found.proof.decoded == 3
