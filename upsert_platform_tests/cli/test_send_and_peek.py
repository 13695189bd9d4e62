"""`send` and `peek` against real servers: what one writes the other shows, and what is no row is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import DataFile, write_files
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.store import ChangelogStore, Positions
from upsert_platform.cli.main import main
from upsert_platform.sync.binding import Binding, bind, load
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxCompute
from upsert_platform_tests.local.maxcompute.server import maxcompute_server
from upsert_platform_tests.local.tablestore.server import ServerHandle as Tablestore
from upsert_platform_tests.local.tablestore.server import tablestore_server

USERS = """
CREATE TABLE users (id BIGINT, name STRING NOT NULL, spent DECIMAL(20, 2), at TIMESTAMP_LTZ(3), raw BYTES, ok BOOLEAN,
  tags ARRAY<STRING>, made TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'json', 'value.format' = '{format}');
"""
SERVING = """
CREATE TABLE serving (id BIGINT, name STRING, spent DECIMAL(20, 2), PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '{tablestore.endpoint}', 'tablestore.instance.name' =
  '{tablestore.instance}', 'tablestore.access.key.id' = '{tablestore.access_key_id}',
  'tablestore.access.key.secret' = '{tablestore.access_key_secret}');
CREATE TABLE totals (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ('connector' = 'maxcompute',
  'odps.end.point' = '{maxcompute.endpoint}', 'odps.project.name' = '{maxcompute.project}',
  'odps.access.id' = '{maxcompute.access_id}', 'odps.access.key' = '{maxcompute.access_key}',
  'table.name' = 'totals', 'sink.operation' = 'upsert');
INSERT INTO serving SELECT id, name, spent FROM users;
INSERT INTO totals SELECT name, COUNT(*) AS n FROM users GROUP BY name;
"""


@pytest.fixture(scope="module")
def tablestore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tablestore]:
    with tablestore_server(tmp_path_factory.mktemp("peeked")) as found:
        yield found


@pytest.fixture(scope="module")
def maxcompute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MaxCompute]:
    with maxcompute_server(tmp_path_factory.mktemp("peeked")) as found:
        yield found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(tmp_path))
    return tmp_path


def run(*arguments: str, given: str | bytes = "") -> Result:
    return CliRunner().invoke(main, list(arguments), input=given)


def texts(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def consumed(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None, int]]:
    """Every record of a topic of one partition, by a client of its own."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "seen", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    try:
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append((message.key(), message.value(), message.timestamp()[1]))
    finally:
        consumer.close()
    return found


PUT = (
    '{"id": 1, "name": "a\\u00f6", "spent": 12345678901234567.10, "at": "2024-05-06T07:08:09.123Z", "raw": "AP8=",'
    ' "ok": true, "tags": ["x", null], "made": "2024-01-02T03:04:05Z"}'
)


@pytest.mark.parametrize("value_format", ["json", "avro', 'value.avro.timestamp_mapping.legacy' = 'false"])
def test_what_is_sent_is_on_the_topic_and_is_shown(
    project: Path, kafka_bootstrap: str, topic: str, value_format: str
) -> None:
    (project / "users.sql").write_text(USERS.format(topic=topic, servers=kafka_bootstrap, format=value_format))
    given = f'{PUT}\n\n{{"id": 2, "name": "b"}}\n{{"id": 2, "_kind": "-D"}}\n'
    sent = run("send", "users", given=given)
    assert (sent.exit_code, sent.output) == (0, f"2 records and 1 tombstone sent to {topic}\n")
    (first, second, third) = consumed(kafka_bootstrap, topic)
    assert (first[0], first[2]) == (b'{"id":1}', 1_704_164_645_000)
    assert (second[0], third[:2]) == (b'{"id":2}', (b'{"id":2}', None))
    shown = texts(run("peek", "users", "--json", "--limit", "5"))
    assert [(row["_kind"], row["_offset"], row["id"]) for row in shown] == [("+U", 0, 1), ("+U", 1, 2), ("-D", 2, 2)]
    columns = {name: shown[0][name] for name in ("name", "at", "raw", "ok", "tags")}
    assert columns == {
        "name": "aö", "at": "2024-05-06T07:08:09.123Z", "raw": "AP8=", "ok": True, "tags": ["x", None],
    }  # fmt: skip
    assert '"spent":12345678901234567.10' in run("peek", "topics/users", "--json").stdout


def test_what_is_shown_can_be_sent_again(project: Path, kafka_bootstrap: str, make_topic: Callable[..., str]) -> None:
    first, second = make_topic(), make_topic()
    one = USERS.format(topic=first, servers=kafka_bootstrap, format="json")
    other = USERS.format(topic=second, servers=kafka_bootstrap, format="json").replace("users", "copies")
    (project / "users.sql").write_text(one + other)
    assert run("send", "users", given=f'{PUT}\n{{"id":7,"_kind":"-D"}}\n').exit_code == 0
    assert run("send", "copies", given=run("peek", "users", "--json").stdout).exit_code == 0
    before, after = (consumed(kafka_bootstrap, name) for name in (first, second))
    assert before[0] == after[0]
    assert [item[:2] for item in before] == [item[:2] for item in after]


REFUSED = {
    "nonsense": "not JSON: Expecting value at column 1",
    "[1]": "a line is a JSON object of columns, not a list",
    '{"id": 1, "id": 2}': "column 'id' stands twice",
    '{"id": 1, "name": "a", "nmae": "b"}': "the table has no column 'nmae'; did you mean 'name'?",
    '{"id": "1", "name": "a"}': "column 'id' is BIGINT NOT NULL and does not take a text",
    '{"id": 1.5, "name": "a"}': "column 'id' is BIGINT NOT NULL and does not take a number with a fraction",
    '{"id": 9223372036854775808, "name": "a"}': "id",
    '{"id": 1, "name": 5}': "column 'name' is STRING NOT NULL and does not take a whole number",
    '{"id": 1, "name": "a", "ok": "yes"}': "column 'ok' is BOOLEAN and does not take a text",
    '{"id": 1, "name": "a", "at": "yesterday"}': "at",
    '{"name": "a"}': "primary key column 'id' is null",
    '{"id": 1}': "column 'name' is null, or a field within it, though declared NOT NULL",
    '{"id": 1, "_kind": "?"}': "'_kind' is \"?\": a row to send is +I, +U or -D",
    '{"id": 1, "name": "a", "made": "1969-01-01T00:00:00Z"}': "a record's timestamp must be",
}


def test_lines_that_are_no_row_are_told_and_the_others_sent(project: Path, kafka_bootstrap: str, topic: str) -> None:
    (project / "users.sql").write_text(USERS.format(topic=topic, servers=kafka_bootstrap, format="json"))
    lines = [*REFUSED, '{"id": 3, "name": "c"}', '{"id": 4, "name": "' + "x" * 2_000_000 + '"}']
    sent = run("send", "users", given="\n".join(lines).encode() + b"\n\xff\n")
    assert sent.exit_code == 1
    assert (
        sent.stdout == f"1 record and 0 tombstones sent to {topic}; {len(REFUSED) + 2} lines refused, 0 not delivered\n"
    )
    told = sent.stderr.splitlines()
    for number, reason in enumerate(REFUSED.values(), 1):
        assert told[number - 1].startswith(f"  line {number}: ")
        assert reason in told[number - 1]
    assert "'properties.max.request.size'" in told[-2]
    assert told[-1].endswith("not UTF-8: invalid start byte at byte 0")
    assert [key for key, _, _ in consumed(kafka_bootstrap, topic)] == [b'{"id":3}']


def test_sending_changes_nothing_where_it_must_not(project: Path, kafka_bootstrap: str, topic: str) -> None:
    declared = USERS.format(topic=topic, servers=kafka_bootstrap, format="json")
    written = declared.replace("users", "copies").replace(topic, f"{topic}-copies")
    (project / "users.sql").write_text(f"{declared}{written}INSERT INTO copies SELECT * FROM users;")
    line = '{"id": 1, "name": "a"}'
    dry = run("send", "users", "--dry-run", given=line)
    assert (dry.exit_code, dry.output) == (0, f"1 record and 0 tombstones would be sent to {topic}\n")
    assert "is written by an INSERT INTO" in run("send", "copies", given=line).output
    assert f"topic '{topic}-copies' does not exist" in run("send", "copies", "--force", given=line).output
    assert (
        "no table 'user' with a topic is declared; there are: copies, users" in run("send", "user", given=line).output
    )
    assert consumed(kafka_bootstrap, topic) == []
    deleted = run("send", "users", "--delete", given=line)
    assert deleted.output == f"0 records and 1 tombstone sent to {topic}\n"
    assert [item[:2] for item in consumed(kafka_bootstrap, topic)] == [(b'{"id":1}', None)]


PLAIN = """
CREATE TABLE events (id BIGINT, what STRING, at BIGINT METADATA FROM 'offset') WITH ('connector' = 'kafka',
  'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'csv', 'scan.startup.mode' =
  'earliest-offset');
"""


def test_plain_topics_take_records_without_a_key_and_no_tombstone(
    project: Path, kafka_bootstrap: str, topic: str
) -> None:
    (project / "events.sql").write_text(PLAIN.format(topic=topic, servers=kafka_bootstrap))
    sent = run("send", "events", given='{"id": 1, "what": "a"}\n{"id": null, "what": "b"}\n{"id": 1, "_kind": "-D"}\n')
    assert sent.stdout.startswith("2 records and 0 tombstones sent")
    assert "has no tombstones" in sent.stderr
    assert [item[:2] for item in consumed(kafka_bootstrap, topic)] == [(None, b"1,a"), (None, b",b")]


def test_records_that_cannot_be_read_are_shown_with_the_reason(
    project: Path, kafka_bootstrap: str, make_topic: Callable[..., str]
) -> None:
    from confluent_kafka import Producer

    topic = make_topic(partitions=3)
    (project / "users.sql").write_text(USERS.format(topic=topic, servers=kafka_bootstrap, format="json"))
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(9):
        producer.produce(topic, b"\x1b[2J{", b'{"id":%d}' % number, partition=number % 3, timestamp=1000 + number)
    producer.produce(topic, b'{"id":1,"name":"x"}', None, partition=0, timestamp=2000)
    producer.flush()
    shown = texts(run("peek", "users", "--json", "--limit", "4"))
    assert [(row["_partition"], row["_raw_key"]) for row in shown] == [
        (0, '{"id":6}'), (1, '{"id":7}'), (2, '{"id":8}'), (0, None),
    ]  # fmt: skip
    assert shown[-1]["_reason"] == "key: it is null, so the record belongs to no row"
    table = run("peek", "users")
    assert "(3 partitions, 10 offsets)" in table.output.replace("\n", " ").replace("  ", " ")
    assert f"\n{topic}-2@2 cannot be read: " in table.output, table.output
    assert "\x1b" not in table.output


def append(store: ChangelogStore, batch: Sequence[Mapping[str, Any]], schema: Any) -> None:
    import pyarrow as pa

    head = store.create()
    listed = pa.Table.from_pylist([dict(row) for row in batch], schema=schema.remove(0)).to_batches()
    files = [
        DataFile(**row)
        for manifest in write_files(listed, location=store.location, schema=schema, batch=head.batch + 1)
        for row in manifest.to_pylist()
    ]
    assert store.append(
        files, head=head, positions=Positions(head.positions.offsets, head.positions.topic_ids), run="r"
    )


def change(kind: str, offset: int, **columns: Any) -> dict[str, Any]:
    return {rows.KIND: kind, rows.TOPIC: "t", rows.PARTITION: 0, rows.OFFSET: offset, rows.ROW: 0, **columns}


@pytest.fixture
def whole(project: Path, kafka_bootstrap: str, topic: str, tablestore: Tablestore, maxcompute: MaxCompute) -> Binding:
    text = USERS.format(topic=topic, servers=kafka_bootstrap, format="json")
    (project / "all.sql").write_text(text + SERVING.format(tablestore=tablestore, maxcompute=maxcompute))
    return bind(*load(project))


def test_the_newest_rows_of_changelogs_and_queries_are_shown(project: Path, whole: Binding) -> None:
    assert "nothing was committed" in run("peek", "changelogs/users").output
    changelog = whole.changelog("users", Lake(str(project / "home")))
    schema = rows.arrow_schema(changelog.table)
    for batch in range(1, 13):
        append(changelog, [change("+U", 2 * batch + n, id=n, name=f"b{batch}") for n in range(2)], schema)
    append(changelog, [change("-D", 30, id=1), change("?", 31, _reason="broken")], schema)
    shown = texts(run("peek", "changelogs/users", "--json", "--limit", "3"))
    told = [(row["_batch"], row["_kind"], row["id"], row["name"]) for row in shown]
    assert told == [(12, "+U", 0, "b12"), (12, "+U", 1, "b12"), (13, "-D", 1, None)]
    assert len(texts(run("peek", "changelogs/users", "--json", "--limit", "1000"))) == 25


def test_the_newest_rows_of_a_query_are_shown(project: Path, whole: Binding) -> None:
    from upsert_platform.engine.store import PLAN, QueryStore, fingerprint

    (source,) = whole.queries.values()
    store = whole.changelog(source.table.name, Lake(str(project / "home")))
    assert isinstance(store, QueryStore)
    head = store.create()
    import pyarrow as pa

    schema = store.result().schema
    listed = pa.Table.from_pylist([change("+U", 0, name="a", n=3)], schema=schema.remove(0)).to_batches()
    (manifest,) = write_files(listed, location=store.location, schema=schema, batch=1)
    files = [DataFile(**row) for row in manifest.to_pylist()]
    assert store.append(files, head=head, positions=Positions({}, {PLAN: fingerprint(source.query)}), run="r")
    for name in ("queries/totals", "totals$query"):
        (row,) = texts(run("peek", name, "--json"))
        assert (row["_kind"], row["name"], row["n"]) == ("+U", "a", 3)


def test_rows_of_tables_are_shown_by_their_vendors_clients(
    whole: Binding, tablestore: Tablestore, maxcompute: MaxCompute
) -> None:
    from tablestore import CapacityUnit, OTSClient, ReservedThroughput, Row, TableMeta, TableOptions

    assert "Tablestore table 'serving' in" in run("peek", "tables/serving").output
    client = OTSClient(tablestore.endpoint, tablestore.access_key_id, tablestore.access_key_secret, tablestore.instance)
    reserved = ReservedThroughput(CapacityUnit(0, 0))
    client.create_table(TableMeta("serving", [("id", "INTEGER")]), TableOptions(), reserved)
    for number in range(5):
        client.put_row("serving", Row([("id", number)], [("name", f"n{number}"), ("spent", "7.50")]))
    shown = run("peek", "serving", "--json", "--limit", "2")
    assert shown.stdout == '{"id":0,"name":"n0","spent":7.50}\n{"id":1,"name":"n1","spent":7.50}\n'

    assert "MaxCompute table" in run("peek", "tables/totals").output
    odps = maxcompute.odps()
    table = odps.create_table(
        "totals", ("name string not null, n bigint", None), transactional=True, primary_key="name"
    )
    with table.open_writer() as writer:
        writer.write([["a", 1], ["b", 2], ["c", 3]])
    found = texts(run("peek", "tables/totals", "--json"))
    assert sorted((row["name"], row["n"]) for row in found) == [("a", 1), ("b", 2), ("c", 3)]
    assert len(texts(run("peek", "tables/totals", "--json", "--limit", "2"))) == 2
    unknown = run("peek", "nothing")
    assert unknown.exit_code == 1
    assert "topics/users, changelogs/users, queries/totals, tables/serving, tables/totals" in unknown.output


def test_names_are_completed(whole: Binding) -> None:
    done = CliRunner().invoke(
        main, [], env={"_MAIN_COMPLETE": "bash_complete", "COMP_WORDS": "main peek t", "COMP_CWORD": "2"},
        prog_name="main",
    )  # fmt: skip
    assert done.output.split() == ["plain,topics/users", "plain,tables/serving", "plain,tables/totals"]
