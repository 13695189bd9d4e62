"""Projects in memory: what is sent is what tables hold, by the platform's own engine."""

import datetime as dt
import os
import random
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform import testing
from upsert_platform.core.errors import DeclarationError, UpsertPlatformError
from upsert_platform.declarations.starter import write_starter

pytest_plugins = ["upsert_platform.testing.plugin"]

KAFKA = """'properties.bootstrap.servers' = '${BROKERS}', 'properties.sasl.jaas.config' = '${JAAS}',
  'key.format' = 'json', 'value.format' = 'json'"""
STORE = """'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}'"""


def declare(path: Path, sql: str) -> Path:
    (path / "tables.sql").write_text(sql, "utf-8")
    return path


USERS = f"""CREATE TABLE users (id BIGINT, name STRING NOT NULL, born DATE, seen TIMESTAMP(3), photo BYTES,
  balance DECIMAL(12, 2), tags ARRAY<STRING>, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'users', {KAFKA});
CREATE TABLE copies (id BIGINT, name STRING, born DATE, seen TIMESTAMP(3), photo BYTES, balance DECIMAL(12, 2),
  PRIMARY KEY (id) NOT ENFORCED) WITH ({STORE});
INSERT INTO copies SELECT id, name, born, seen, photo, balance FROM users WHERE id < 100;
"""


@pytest.fixture
def users(tmp_path: Path, upsert_project: Callable[..., testing.ProjectUnderTest]) -> testing.ProjectUnderTest:
    return upsert_project(declare(tmp_path, USERS))


def test_values_arrive_as_they_were_sent(users: testing.ProjectUnderTest) -> None:
    row: dict[str, Any] = {
        "id": 1,
        "name": "Zoë",
        "born": dt.date(1815, 12, 10),
        "seen": dt.datetime.fromisoformat("2024-02-29T12:00:00.123"),
        "photo": b"\x00\xff",
        "balance": Decimal("1234567890.12"),
    }
    users.send("users", [{**row, "tags": ["a", "b"]}, {"id": 2, "name": "b"}, {"id": 100, "name": "filtered out"}])
    outcome = users.sync()
    assert users.rows("copies") == [row, {**dict.fromkeys(row), "id": 2, "name": "b"}]
    assert set(outcome.materialized) == {"changelogs/users", "tables/copies"}
    assert outcome.checks["tables/copies:last_value_per_key"]


def test_a_table_whose_place_only_a_resource_knows(tmp_path: Path) -> None:
    sql = f"""CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
      WITH ('connector' = 'upsert-kafka', 'topic' = 'users', {KAFKA});
    CREATE TABLE serving (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'postgres');
    INSERT INTO serving SELECT id, name FROM users;"""
    with testing.project(declare(tmp_path, sql)) as shop:
        shop.send("users", [{"id": 1, "name": "a"}])
        shop.sync()
        assert shop.rows("serving") == [{"id": 1, "name": "a"}]


def test_updates_tombstones_and_rows_that_leave_a_filter(users: testing.ProjectUnderTest) -> None:
    users.send("users", [{"id": n, "name": "a"} for n in range(5)])
    users.send("users", [{"id": 1, "name": "b"}])
    users.delete("users", [{"id": 2}])
    users.sync()
    assert {row["id"]: row["name"] for row in users.rows("copies")} == {0: "a", 1: "b", 3: "a", 4: "a"}
    users.delete("users", [{"id": 0}, {"id": 99}])
    users.sync()
    assert [row["id"] for row in users.rows("copies")] == [1, 3, 4]


def test_a_run_without_new_records_changes_nothing(users: testing.ProjectUnderTest) -> None:
    users.send("users", [{"id": 1, "name": "a"}])
    users.sync()
    before = users.rows("copies")
    outcome = users.sync()
    assert users.rows("copies") == before
    assert all(outcome.checks.values())


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"id": 1, "nane": "x"}, "row 2: the table has no column 'nane'; did you mean 'name'?"),
        ({"id": "1", "name": "x"}, "row 2: column 'id' is BIGINT NOT NULL and does not take a text"),
    ],
)
def test_a_row_that_is_not_one_of_the_table_is_refused_and_nothing_is_sent(
    users: testing.ProjectUnderTest, row: dict[str, Any], told: str
) -> None:
    with pytest.raises(UpsertPlatformError) as error:
        users.send("users", [{"id": 5, "name": "good"}, row])
    assert told in str(error.value)
    users.sync()
    assert users.rows("copies") == []


def test_records_that_cannot_be_decoded_are_set_aside(users: testing.ProjectUnderTest) -> None:
    users.send_record("users", key=b'{"id": 1}', value=b"{")
    users.send("users", [{"id": 2, "name": "a"}])
    outcome = users.sync()
    assert not outcome.checks["changelogs/users:quarantine_below"]
    assert [row["id"] for row in users.rows("copies")] == [2]


def test_a_table_spoiled_by_another_writer_fails_its_check_and_the_outcome_raises(
    users: testing.ProjectUnderTest,
) -> None:
    users.send("users", [{"id": 1, "name": "a"}])
    users.sync()
    held = users.platform.binding().targets["copies"].open()._held  # type: ignore[attr-defined]
    held.rows[1,] = {**held.rows[1,], "name": "spoiled"}
    users.send("users", [{"id": 2, "name": "b"}])
    outcome = users.sync(raise_on_error=False)
    assert not outcome.checks["tables/copies:last_value_per_key"]
    with pytest.raises(UpsertPlatformError, match="check tables/copies:last_value_per_key did not pass"):
        outcome.check()


CHAIN = f"""
CREATE TABLE orders (order_id BIGINT, rate STRING, amount BIGINT, at AS PROCTIME(),
  PRIMARY KEY (order_id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'orders', {KAFKA});
CREATE TABLE rates (rate STRING, factor DECIMAL(6, 2), PRIMARY KEY (rate) NOT ENFORCED) WITH ({STORE});
CREATE TABLE priced (order_id BIGINT, factor DECIMAL(6, 2), PRIMARY KEY (order_id) NOT ENFORCED) WITH ({STORE});
CREATE TABLE big (order_id BIGINT, amount BIGINT, PRIMARY KEY (order_id) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'big', {KAFKA});
CREATE TABLE read_big (order_id BIGINT, amount BIGINT, PRIMARY KEY (order_id) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'big', {KAFKA});
CREATE TABLE totals (order_id BIGINT, amount BIGINT, PRIMARY KEY (order_id) NOT ENFORCED) WITH ({STORE});
INSERT INTO big SELECT order_id, amount FROM orders WHERE amount > 10;
INSERT INTO totals SELECT * FROM read_big;
INSERT INTO priced SELECT o.order_id, r.factor FROM orders AS o
  JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.rate = r.rate;
"""


def test_topics_that_are_written_are_read_on_and_queries_find_rows_that_were_put(tmp_path: Path) -> None:
    with testing.project(declare(tmp_path, CHAIN), partitions=3) as shop:
        shop.put("rates", [{"rate": "eu", "factor": Decimal("1.10")}])
        shop.send("orders", [{"order_id": n, "rate": "eu", "amount": n} for n in (9, 10, 11, 12)])
        shop.sync()
        assert [row["order_id"] for row in shop.rows("totals")] == [11, 12]
        assert shop.rows("priced")[0] == {"order_id": 9, "factor": Decimal("1.10")}
        shop.delete("orders", [{"order_id": 12}])
        shop.sync()
        assert [row["order_id"] for row in shop.rows("totals")] == [11]
        assert [row["order_id"] for row in shop.rows("priced")] == [9, 10, 11]
        with pytest.raises(UpsertPlatformError, match="table 'rates' has no column 'x'"):
            shop.put("rates", [{"x": 1}])
        with pytest.raises(UpsertPlatformError, match="those are: rates"):
            shop.put("totals", [])


def test_rows_of_a_table_that_nothing_writes_are_refused_with_the_names_of_others(
    users: testing.ProjectUnderTest,
) -> None:
    with pytest.raises(UpsertPlatformError, match=r"no INSERT INTO writes table 'users'.*copies"):
        users.rows("users")


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (USERS.replace("'key.format' = 'json'", "'key.format' = 'avro-confluent', 'key.avro-confluent.url' = 'http://r'"),
         "format 'avro-confluent', which asks a schema registry, has no form in memory"),
        (USERS.replace("'topic' = 'users'", "'topic' = 'users', 'scan.startup.mode' = 'timestamp',"
         " 'scan.startup.timestamp-millis' = '1'").replace("upsert-kafka", "kafka").replace(
         ", PRIMARY KEY (id) NOT ENFORCED)\n  WITH ('connector' = 'kafka'", ")\n  WITH ('connector' = 'kafka'").replace(
         "'key.format' = 'json', ", "").replace("'value.format'", "'format'"),
         "'scan.startup.mode' = 'timestamp' has no form in memory"),
    ],
)  # fmt: skip
def test_what_has_no_form_in_memory_is_refused_by_name(tmp_path: Path, sql: str, told: str) -> None:
    with pytest.raises(DeclarationError) as error, testing.project(declare(tmp_path, sql)):
        pass
    assert told in str(error.value)
    assert 'servers="local"' in str(error.value)


def test_a_write_mode_of_its_own_is_refused_when_the_table_is_written(tmp_path: Path) -> None:
    sql = USERS.replace("'tablestore.instance.name'", "'insert.mode' = 'update', 'tablestore.instance.name'")
    with testing.project(declare(tmp_path, sql)) as shop:
        shop.send("users", [{"id": 1, "name": "a"}])
        outcome = shop.sync(raise_on_error=False)
        assert "a write mode that keeps cells or rows has no form in memory" in outcome.errors["tables__copies"]


def test_variables_of_the_test_are_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERS", "production:9092")
    with testing.project(declare(tmp_path, USERS), variables={"BROKERS": "test:9092", "ID": "x"}) as shop:
        kafka = shop.platform.binding().sources["users"].kafka  # type: ignore[attr-defined]
        assert kafka.settings.bootstrap_servers == "test:9092"
    assert os.environ["BROKERS"] == "production:9092"
    assert "ID" not in os.environ


def test_the_table_is_the_last_value_per_key_run_after_run(users: testing.ProjectUnderTest) -> None:
    random.seed(7)
    wanted: dict[int, str] = {}
    for _ in range(5):
        for _ in range(40):
            key = random.randrange(20)
            if random.random() < 0.3:
                users.delete("users", [{"id": key}])
                wanted.pop(key, None)
            else:
                wanted[key] = f"n{random.random()}"
                users.send("users", [{"id": key, "name": wanted[key]}])
        users.sync()
        assert {row["id"]: row["name"] for row in users.rows("copies")} == wanted


def test_the_starter_project_is_tested_by_its_own_test(tmp_path: Path) -> None:
    write_starter(tmp_path)
    code: dict[str, Any] = {"__file__": str(tmp_path / "test_orders.py")}
    exec(compile((tmp_path / "test_orders.py").read_text("utf-8"), "test_orders.py", "exec"), code)
    for name in [name for name in code if name.startswith("test_")]:
        code[name]()


def test_assets_without_dataframes_need_no_spark(tmp_path: Path) -> None:
    @dg.asset(deps=[dg.AssetKey(["tables", "copies"])])
    def counted(platform: dg.ResourceParam[Any]) -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(metadata={"root": platform.root})

    with testing.project(declare(tmp_path, USERS), assets=[counted]) as shop:
        outcome = shop.materialize(counted)
        assert outcome.materialized == ("counted",)
        with (
            pytest.raises(UpsertPlatformError, match="servers is 'memory' or 'local'"),
            testing.project(
                tmp_path,
                servers="mars",  # type: ignore[arg-type]
            ),
        ):
            pass


def test_an_audit_of_tables_in_memory_asks_no_broker(users: testing.ProjectUnderTest) -> None:
    users.send("users", [{"id": 1, "name": "a"}])
    users.sync()
    started = time.monotonic()
    assert users.run("audit").checks == {"tables/copies:equals_topic": False}
    assert time.monotonic() - started < 20  # a broker that is not there is waited for a minute


GROUPED = f"""
CREATE TABLE orders (id BIGINT, region STRING, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'orders', {KAFKA});
CREATE TABLE regions (region STRING, n BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH ({STORE}{{more}});
INSERT INTO regions SELECT region, COUNT(*) FROM orders GROUP BY region;
"""


def test_rows_with_a_null_in_their_key_are_set_aside_as_by_real_tables(tmp_path: Path) -> None:
    with testing.project(declare(tmp_path, GROUPED.replace("{more}", ""))) as shop:
        shop.send("orders", [{"id": 1, "region": "a"}, {"id": 2, "region": None}, {"id": 3, "region": None}])
        shop.sync()
        assert shop.rows("regions") == [{"region": "a", "n": 1}]
        shop.send("orders", [{"id": 3, "region": "a"}])
        shop.delete("orders", [{"id": 2}])
        shop.sync()
        assert shop.rows("regions") == [{"region": "a", "n": 2}]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (", 'on-error' = 'fail'", "primary key column 'region' is null"),
        (", 'max.refused.rows' = '1'", "2 rows were refused, more than 'max.refused.rows' = 1"),
    ],
)
def test_a_null_key_ends_a_write_where_its_options_say_so(tmp_path: Path, more: str, told: str) -> None:
    sql = GROUPED.replace("{more}", more).replace("n BIGINT, PRIMARY KEY (region)", "n BIGINT, PRIMARY KEY (region, n)")
    with testing.project(declare(tmp_path, sql.replace("COUNT(*)", "id").replace(" GROUP BY region", ""))) as shop:
        shop.send("orders", [{"id": 1, "region": None}, {"id": 2, "region": None}])
        with pytest.raises(UpsertPlatformError, match=told):
            shop.sync()
