"""Formats debezium-json, canal-json, maxwell-json and ogg-json: against Flink's results, and rule by rule."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.core.errors import DeclarationError, SourceLocation
from upsert_platform.formats import build_decoder, build_encoder, validate_format
from upsert_platform.formats.change.decoder import EnvelopeDecoder
from upsert_platform_tests.formats.differences import CDC_DECODE
from upsert_platform_tests.formats.support import (
    Vector,
    batch_of_vector,
    columns_of,
    comparable,
    cut_nanoseconds,
    differing,
    load,
    plain_rows,
)

Rows = list[list[Any]]


def read(
    format_id: str, columns: str, *messages: Any, options: dict[str, str] | None = None, metadata: str = ""
) -> list[Rows | str]:
    """For each message (given as data) its rows, each led by its kind; or the reason why it cannot be read."""
    raw = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
    extra = columns_of(metadata) if metadata else []
    declared = columns_of(columns)
    decoded = build_decoder(format_id, declared, options or {}, metadata=extra).decode(raw)
    assert decoded.kinds is not None
    found: list[Rows] = [[] for _ in raw]
    rows = plain_rows(decoded.rows, [*declared, *extra])
    for row, kind, message in zip(rows, decoded.kinds.to_pylist(), decoded.message.to_pylist(), strict=True):
        found[message].append([kind, *row])
    return [decoded.errors.get(place, rows) for place, rows in enumerate(found)]


def outcome(vector: Vector) -> Rows | None:
    decoded = build_decoder(vector.format, vector.columns, vector.options).decode([vector.message or b""])
    if decoded.errors:
        return None
    assert decoded.kinds is not None
    rows = plain_rows(decoded.rows, vector.columns)
    return [[kind, *row] for kind, row in zip(decoded.kinds.to_pylist(), rows, strict=True)]


def expected(vector: Vector) -> Rows | None:
    if vector.error is not None:
        return None
    return [
        [
            row["kind"],
            *(comparable(value, logical) for value, (_, logical) in zip(row["values"], vector.columns, strict=True)),
        ]
        for row in vector.rows
    ]


def test_decoded_rows_and_kinds_are_flinks() -> None:
    vectors = [item for item in load("cdc_decode") if item.message is not None]
    found: dict[str, tuple[Any, Any]] = {}
    for item in vectors:
        got, want = outcome(item), expected(item)
        ignores = item.options.get(f"{item.format}.ignore-parse-errors") == "true"
        if got is None and want == [] and ignores:  # what Flink drops goes to quarantine
            want = None
        found[item.id] = (got, want)
    known = tuple(number for difference in CDC_DECODE.values() for number in difference.vectors)
    assert differing(found, "cdc-decode") == known
    assert len(known) * 50 < len(vectors)


def test_encoded_bytes_are_flinks() -> None:
    found: dict[str, tuple[Any, Any]] = {}
    for item in load("cdc_encode"):
        if item.error is not None:
            continue
        batch, cut = batch_of_vector(item)
        encoder: Any = build_encoder(item.format, item.columns, item.options)
        messages, refusals = encoder.encode(batch, pa.array([item.kind]))
        assert refusals == {}
        want = item.message or b""
        found[item.id] = (messages[0].as_py(), cut_nanoseconds(want) if cut else want)
    assert differing(found, "cdc-encode") == ()


@pytest.mark.parametrize("name", ["cdc_decode", "cdc_encode"])
def test_declarations_are_refused_where_flink_refuses(name: str) -> None:
    for item in load(name):
        direction: Any = "source" if name == "cdc_decode" else "sink"
        problems = validate_format(
            item.format, item.options, item.columns, side="value", direction=direction, subject="table 't'",
            location=SourceLocation("t.sql", 1),
        )  # fmt: skip
        errors = [problem for problem in problems if problem.severity == "error"]
        assert bool(errors) == (item.error == "config-error"), item.id


OLD, NEW = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
UPDATED = [["-U", 1, b"a"], ["+U", 1, b"b"]]
TWO_ROWS = {"data": [NEW, {"id": 2, "name": "c"}], "old": [{"name": "a"}, {"id": 9}], "type": "UPDATE"}
COLUMNS = "id INT, name STRING"


@pytest.mark.parametrize(
    ("format_id", "message", "want"),
    [
        pytest.param("debezium-json", {"after": NEW, "op": "c"}, [["+I", 1, b"b"]], id="debezium-create"),
        pytest.param("debezium-json", {"after": NEW, "op": "r"}, [["+I", 1, b"b"]], id="debezium-snapshot"),
        pytest.param("debezium-json", {"before": OLD, "after": NEW, "op": "u"}, UPDATED, id="120-debezium-update"),
        pytest.param("debezium-json", {"before": OLD, "op": "d"}, [["-D", 1, b"a"]], id="debezium-delete"),
        pytest.param("debezium-json", b"", [], id="121-debezium-empty"),
        pytest.param("debezium-json", {"after": NEW, "op": "u"}, "REPLICA IDENTITY", id="122-no-before"),
        pytest.param("debezium-json", {"before": None, "op": "d"}, "REPLICA IDENTITY", id="delete-without-before"),
        pytest.param("debezium-json", {"after": None, "op": "c"}, "field after", id="create-without-after"),
        pytest.param("debezium-json", {"before": None, "op": "t"}, "'t' is not an operation", id="debezium-truncate"),
        pytest.param("debezium-json", {"payload": {"after": NEW, "op": "c"}}, "not an oper", id="schema-unexpected"),
        pytest.param("debezium-json", b"[1]", "an object expected", id="debezium-array"),
        pytest.param("ogg-json", {"after": NEW, "op_type": "I"}, [["+I", 1, b"b"]], id="ogg-insert"),
        pytest.param("ogg-json", {"before": OLD, "after": NEW, "op_type": "U"}, UPDATED, id="ogg-update"),
        pytest.param("ogg-json", {"before": OLD, "op_type": "D"}, [["-D", 1, b"a"]], id="ogg-delete"),
        pytest.param("ogg-json", {"op_type": "T"}, "'T' is not an operation", id="ogg-truncate"),
        pytest.param("canal-json", {"data": [OLD, NEW], "type": "INSERT"}, [["+I", 1, b"a"], ["+I", 1, b"b"]],
                     id="123-canal-insert"),
        pytest.param("canal-json", {"data": [NEW], "old": [{"name": None}], "type": "UPDATE"},
                     [["-U", 1, None], ["+U", 1, b"b"]], id="123-canal-old-null"),
        pytest.param("canal-json", TWO_ROWS, [*UPDATED, ["-U", 9, b"c"], ["+U", 2, b"c"]], id="124-canal-each-row"),
        pytest.param("canal-json", {"data": [NEW], "old": None, "type": "UPDATE"}, "field old", id="canal-no-old"),
        pytest.param("canal-json", {"data": None, "type": "ALTER"}, "'ALTER' is not an oper", id="125-canal-alter"),
        pytest.param("canal-json", {"data": None, "type": "CREATE"}, [], id="canal-create"),
        pytest.param("canal-json", {"data": ["x"], "type": "INSERT"}, "an object expected", id="canal-row-of-text"),
        pytest.param("maxwell-json", {"data": NEW, "type": "insert"}, [["+I", 1, b"b"]], id="maxwell-insert"),
        pytest.param("maxwell-json", {"data": NEW, "old": {"name": None}, "type": "update"},
                     [["-U", 1, None], ["+U", 1, b"b"]], id="127-maxwell-old-null"),
        pytest.param("maxwell-json", {"data": NEW, "type": "update"}, "field old", id="maxwell-no-old"),
        pytest.param("maxwell-json", {"data": NEW, "type": "bootstrap-insert"}, "not an oper", id="maxwell-bootstrap"),
    ],
)  # fmt: skip
def test_a_message_is_read_as_flink_reads_it(format_id: str, message: Any, want: Rows | str) -> None:
    [found] = read(format_id, COLUMNS, message)
    if isinstance(want, str):
        assert isinstance(found, str)
        assert want in found
    else:
        assert found == want


def test_126_canal_filters_match_whole_names() -> None:
    def message(database: str, table: str) -> dict[str, Any]:
        return {"data": [NEW], "type": "INSERT", "database": database, "table": table}

    options = {"canal-json.database.include": "shop|crm", "canal-json.table.include": "t"}
    messages = [message("shop", "t"), message("shop2", "t"), message("crm", "t1"), {"data": [NEW], "type": "INSERT"}]
    found = read("canal-json", COLUMNS, *messages, options=options)
    assert found[:3] == [[["+I", 1, b"b"]], [], []]
    assert "database" in found[3]


def test_debezium_with_schema() -> None:
    options = {"debezium-json.schema-include": "true"}
    wrapped = {"schema": {"type": "struct"}, "payload": {"before": OLD, "after": NEW, "op": "u"}}
    found = read("debezium-json", COLUMNS, wrapped, {"after": NEW, "op": "c"}, options=options)
    assert found[0] == [["-U", 1, b"a"], ["+U", 1, b"b"]]
    assert isinstance(found[1], str)


def test_metadata_of_debezium() -> None:
    message = {"after": NEW, "op": "c", "ts_ms": 1_700_000_000_123,
               "source": {"db": "shop", "schema": "s", "table": "t", "ts_ms": 1_600_000_000_000}}  # fmt: skip
    metadata = (
        "`ingestion-timestamp` TIMESTAMP_LTZ(3), `source.timestamp` TIMESTAMP_LTZ(3), `source.database` STRING, "
        "`source.schema` STRING, `source.table` STRING, `source.properties` MAP<STRING, STRING>"
    )
    [[row]] = read("debezium-json", COLUMNS, message, metadata=metadata)
    assert row[:8] == ["+I", 1, b"b", 1_700_000_000_123_000, 1_600_000_000_000_000, b"shop", b"s", b"t"]
    assert (b"db", b"shop") in row[8]
    wrapped = {"schema": {"type": "struct"}, "payload": message}
    [[row]] = read(
        "debezium-json", COLUMNS, wrapped, metadata="schema STRING", options={"debezium-json.schema-include": "true"}
    )
    assert row == ["+I", 1, b"b", b'{"type":"struct"}']


def test_metadata_of_canal_and_maxwell_and_ogg() -> None:
    canal = {"data": [NEW], "type": "INSERT", "database": "d", "table": "t", "ts": 5, "es": 6, "pkNames": ["id"],
             "sqlType": {"id": 4}}  # fmt: skip
    metadata = (
        "database STRING, `table` STRING, `sql-type` MAP<STRING, INT>, `pk-names` ARRAY<STRING>, "
        "`ingestion-timestamp` TIMESTAMP_LTZ(3), `event-timestamp` TIMESTAMP_LTZ(3)"
    )
    [[row]] = read("canal-json", COLUMNS, canal, metadata=metadata)
    assert row[3:] == [b"d", b"t", [(b"id", 4)], [b"id"], 5000, 6000]
    maxwell = {"data": NEW, "type": "insert", "database": "d", "ts": 1_596_684_883, "primary_key_columns": ["id"]}
    [[row]] = read(
        "maxwell-json", COLUMNS, maxwell,
        metadata="`ingestion-timestamp` TIMESTAMP_LTZ(3), `primary-key-columns` ARRAY<STRING>",
    )  # fmt: skip
    assert row[3:] == [1_596_684_883_000_000, [b"id"]]  # 128
    ogg = {"after": NEW, "op_type": "I", "table": "OGG.T", "op_ts": "1970-01-01 00:00:01.000002",
           "current_ts": "1970-01-01 00:00:02", "primary_keys": ["id"]}  # fmt: skip
    [[row]] = read(
        "ogg-json", COLUMNS, ogg,
        metadata="`table` STRING, `primary-keys` ARRAY<STRING>, `ingestion-timestamp` TIMESTAMP_LTZ(6),"
        " `event-timestamp` TIMESTAMP_LTZ(6)",
    )  # fmt: skip
    assert row[3:] == [b"OGG.T", [b"id"], 2_000_000, 1_000_002]


TIMES = [
    ("debezium-json", "`ingestion-timestamp` TIMESTAMP_LTZ(3)", {"before": None, "op": "c"}, "ts_ms", 10**18),
    ("debezium-json", "`source.timestamp` TIMESTAMP_LTZ(3)", {"before": None, "op": "c"}, "source", {"ts_ms": "x"}),
    ("canal-json", "`event-timestamp` TIMESTAMP_LTZ(3)", {"type": "INSERT"}, "es", 10**18),
    ("maxwell-json", "`ingestion-timestamp` TIMESTAMP_LTZ(3)", {"type": "insert"}, "ts", 10**18),
]


@pytest.mark.parametrize(("format_id", "metadata", "rest", "field", "odd"), TIMES)
def test_a_time_that_does_not_fit_is_the_fate_of_its_message(
    format_id: str, metadata: str, rest: dict[str, Any], field: str, odd: Any
) -> None:
    def message(number: int, time: Any) -> bytes:
        row = {"id": number, "name": "a"}
        image = {"after": row} if format_id == "debezium-json" else {"data": [row, row] if field == "es" else row}
        return json.dumps({**rest, **image, field: time}).encode()

    fine = {"ts_ms": "1700000000000"} if field == "source" else 1_700_000_000
    for count in (1, 100):  # one by one, and in bulk
        sent = [message(at, fine) for at in range(count)] + [message(7, odd), message(8, fine)]
        declared = columns_of("id INT, name STRING")
        found = build_decoder(format_id, declared, {}, metadata=columns_of(metadata)).decode(sent)
        assert set(found.errors) == {count}
        assert found.errors[count].startswith("metadata '")
        assert sorted(set(found.message.to_pylist())) == [at for at in range(count + 2) if at != count]
        assert found.rows.num_rows == len(found.kinds) == (count + 1) * (2 if field == "es" else 1)


def test_unknown_metadata_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"value\.source\.tabl.*did you mean 'source\.table'"):
        build_decoder("debezium-json", columns_of(COLUMNS), {}, metadata=columns_of("`source.tabl` STRING"))


def test_updates_are_written_as_delete_and_insert() -> None:
    rows = pa.record_batch([pa.array([1, 1, 1, 1], pa.int32()), pa.array(["a", "a", "b", "b"])], names=["id", "name"])
    encoder: Any = build_encoder("debezium-json", columns_of(COLUMNS), {})
    messages, _ = encoder.encode(rows, pa.array(["+I", "-U", "+U", "-D"]))
    assert [json.loads(message)["op"] for message in messages.to_pylist()] == ["c", "d", "c", "d"]


@pytest.mark.parametrize(
    ("format_id", "options", "word"),
    [
        ("debezium-json", {"debezium-json.schema-include": "true"}, "debezium-json.schema-include"),
        ("canal-json", {"canal-json.table.include": "("}, "canal-json.table.include"),
        ("ogg-json", {"ogg-json.map-null-key.mode": "no"}, "ogg-json.map-null-key.mode"),
        ("maxwell-json", {"maxwell-json.timestamp-format.standard": "iso"}, "maxwell-json.timestamp-format.standard"),
        ("maxwell-json", {"json.ignore-parse-errors": "true"}, "json.ignore-parse-errors"),
    ],
)
def test_v26_options_are_checked(format_id: str, options: dict[str, str], word: str) -> None:
    [problem] = validate_format(
        format_id, options, columns_of(COLUMNS), side="value", direction="sink", subject="table 't'",
        location=SourceLocation("t.sql", 1),
    )  # fmt: skip
    assert problem.severity == "error"
    assert word in problem.message


images = st.none() | st.fixed_dictionaries(
    {}, optional={"id": st.sampled_from([1, "2", "x", None, 1.5]), "name": st.sampled_from(["a", None, 5, {"b": 1}])}
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"op": st.sampled_from(["c", "u", "d", "r", "t", None])},
            optional={"before": images, "after": images, "source": st.just({"db": "x"})},
        ),
        max_size=6,
    )
)
@settings(max_examples=150, deadline=None)
def test_both_ways_agree(messages: list[dict[str, Any]]) -> None:
    raw = [json.dumps(message).encode() for message in messages]
    fast: Any = build_decoder("debezium-json", columns_of(COLUMNS), {})
    slow: Any = build_decoder("debezium-json", columns_of(COLUMNS), {})
    slow._root._bulk = None
    got, want = fast.decode(raw), slow.decode(raw)
    assert (got.errors, got.message, got.kinds) == (want.errors, want.message, want.kinds)
    assert plain_rows(got.rows, columns_of(COLUMNS)) == plain_rows(want.rows, columns_of(COLUMNS))


def test_the_bulk_way_is_taken() -> None:
    decoder = build_decoder("debezium-json", columns_of(COLUMNS), {})
    assert isinstance(decoder, EnvelopeDecoder)
    root: Any = decoder._root
    message = json.dumps({"before": OLD, "after": NEW, "op": "u", "source": {"db": "x"}}).encode()
    found = root._bulk.read([message] * 3)
    assert found is not None
    assert found[1] is None


listed = st.fixed_dictionaries(
    {"type": st.sampled_from(["INSERT", "UPDATE", "DELETE", "ALTER", "CREATE"])},
    optional={"data": st.none() | st.lists(images, max_size=3), "old": st.none() | st.lists(images, max_size=3)},
)
single = st.fixed_dictionaries(
    {"type": st.sampled_from(["insert", "update", "delete", "bootstrap-start"])},
    optional={"data": images, "old": images},
)


@pytest.mark.parametrize(("format_id", "shape"), [("canal-json", listed), ("maxwell-json", single)])
@pytest.mark.parametrize("clean", [True, False])
def test_bulk_and_single_changes_agree(format_id: str, shape: st.SearchStrategy[Any], clean: bool) -> None:
    @given(st.lists(shape, max_size=5))
    @settings(max_examples=150, deadline=None)
    def agree(messages: list[dict[str, Any]]) -> None:
        if clean:  # mostly what the bulk way takes
            messages = [one for one in messages if "null" not in json.dumps(one)]
        raw = [json.dumps(message).encode() for message in [*messages, {}]]
        fast: Any = build_decoder(format_id, columns_of(COLUMNS), {})
        slow: Any = build_decoder(format_id, columns_of(COLUMNS), {})
        slow._bulk = None
        got, want = fast.decode(raw), slow.decode(raw)
        assert (got.errors, got.message, got.kinds) == (want.errors, want.message, want.kinds)
        assert plain_rows(got.rows, columns_of(COLUMNS)) == plain_rows(want.rows, columns_of(COLUMNS))

    agree()


@pytest.mark.parametrize(
    ("format_id", "message", "rows"),
    [
        ("canal-json", {"data": [NEW, NEW], "old": [{"name": "a"}, {}], "type": "UPDATE"}, 4),
        ("canal-json", {"data": [NEW, NEW], "old": None, "type": "INSERT"}, 2),
        ("canal-json", {"data": [{"id": "1", "name": "b"}], "old": [{"id": "2"}], "type": "UPDATE"}, 2),
        ("maxwell-json", {"data": NEW, "old": {"name": "a"}, "type": "update"}, 2),
        ("maxwell-json", {"data": NEW, "type": "delete"}, 1),
    ],
)
def test_the_bulk_way_of_lists_is_taken(format_id: str, message: Any, rows: int) -> None:
    decoder: Any = build_decoder(format_id, columns_of(COLUMNS), {})
    raw = [json.dumps(message).encode()] * 2
    found = decoder._bulk.for_block(raw)(raw)
    assert found.handled.tolist() == [0, 1]
    assert found.message.tolist() == [0] * rows + [1] * rows
