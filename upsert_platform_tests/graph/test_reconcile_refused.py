"""Tables that cannot be repaired by row: `verify` tells what it can, `reconcile` refuses, and what it names repairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform_tests.graph.connector_cases import ALL, MIXED, TIMES
from upsert_platform_tests.graph.connectors import Connector, Connectors, Sent
from upsert_platform_tests.graph.stack import COLUMNS, SOURCE, WAREHOUSE, Stack
from upsert_platform_tests.graph.test_reconcile import EACH, command

pytestmark = pytest.mark.usefixtures("spark")
FOUND = ("missing", "extra", "stale")
EPOCH = 1_700_000_000


def refusal(stack: Stack, table: str) -> str:
    """What `reconcile` says, without its line breaks."""
    variables = {"UPSERT_PLATFORM_HOME": str(stack.lake), "UPSERT_PLATFORM_PROJECT": str(stack.project)}
    done = CliRunner().invoke(main, ["reconcile", table], env=variables)
    assert done.exit_code == 1
    return " ".join(done.output.split())


@pytest.mark.soak
def test_a_hundred_spoiled_rows_and_points_of_connectors_are_found_and_their_tables_are_written_anew(
    stack: Stack, make_topic: Callable[..., str]
) -> None:
    """Rows that no record tells of are somebody else's: other programs write such tables too."""
    from tablestore import Row, TimeseriesKey, TimeseriesRow

    wide = Connector("wide", {**ALL, **MIXED, "primarykey.mode": "record_key"}, keys="pk0:string")
    times = {f"tablestore.timeseries.{{table}}.{name}": value for name, value in TIMES.items()}
    unit = {"tablestore.timeseries.{table}.time.unit": "SECONDS"}
    points = Connector("points", {**ALL, **MIXED, "tablestore.mode": "timeseries", **times, **unit})
    connectors = Connectors(stack, make_topic)
    connectors.declare([wide, points])
    wide.sent += [Sent(f"k{n:03}", {"A": n}) for n in range(3 * EACH)]
    values = [{"m": "cpu", "ds": "h", "tag1": f"t{n % 3}", "ts": EPOCH + n, "f": n} for n in range(3 * EACH)]
    points.sent += [Sent(None, value) for value in values[: 2 * EACH]]
    connectors.produce()
    assert connectors.sync().success
    rows, put = connectors.rows("wide"), connectors.points("points")
    assert (len(rows), len(put)) == (3 * EACH, 2 * EACH)

    for n in range(EACH):
        connectors.client.delete_row(wide.table, [("pk0", f"k{n:03}")])
        connectors.client.put_row(wide.table, Row([("pk0", f"k{EACH + n:03}")], [("A", "x")]))
        connectors.client.put_row(wide.table, Row([("pk0", f"other{n}")], [("A", "x")]))
    wrong = [
        TimeseriesRow(TimeseriesKey("cpu", "h", {"tag1": f"t{n % 3}"}), {"f": 0.5}, (EPOCH + n) * 1_000_000)
        for n in range(EACH)
    ]
    assert not connectors.client.put_timeseries_data(points.table, wrong).failedRows
    found: dict[str, Any] = {}
    for connector in (wide, points):
        code, (told,) = command(stack, "verify", connector.asset)
        assert code == 3
        found[connector.name] = [told[name] for name in FOUND]
        assert "drop the table to have it written again from its changelog" in refusal(stack, connector.asset)
    assert found == {"wide": [EACH, 0, EACH], "points": [0, 0, EACH]}

    connectors.client.delete_table(wide.table)
    connectors.client.delete_timeseries_table(points.table)
    connectors.sync()
    assert connectors.rows("wide") == rows
    assert connectors.points("points") == put
    assert [command(stack, "verify", connector.asset)[0] for connector in (wide, points)] == [0, 0]


def test_rows_that_are_appended_to_partitions_are_compared_and_not_repaired(stack: Stack) -> None:
    from odps import ODPS

    source = SOURCE.format(
        columns=COLUMNS, key="place BIGINT METADATA FROM 'offset' VIRTUAL", topic=stack.topic, more=""
    )
    source = source.replace("'upsert-kafka'", "'kafka'").replace("'key.format' = 'json', 'value.format'", "'format'")
    text = WAREHOUSE.format(columns=COLUMNS, key="", table=stack.table, more="").replace(
        ", )", ") PARTITIONED BY (region)"
    )
    text = text.replace("'upsert', 'upsert.write.bucket.num' = '4'", "'insert'")
    (stack.project / "users.sql").write_text(source + text, "utf-8")
    stack.produce(stack.users.first_wave(300))
    assert stack.run().success
    names = ("ACCESS_ID", "ACCESS_KEY", "PROJECT", "ENDPOINT")
    client = ODPS(*[stack.variables[f"UPSERT_MAXCOMPUTE_{name}"] for name in names])

    def count() -> int:
        with client.execute_sql(f"SELECT COUNT(*) FROM {stack.table}").open_reader() as reader:
            return int(next(iter(reader))[0])

    before = count()
    assert before >= 2 * EACH
    more = ", ".join(f"({900_000 + number}, 'nobody', 1.5BD, NULL)" for number in range(EACH))
    client.execute_sql(
        f"INSERT INTO {stack.table} PARTITION (region = 'elsewhere') (user_id, name, balance, updated_at) VALUES {more}"
    )
    code, (told,) = command(stack, "verify", "users_warehouse")
    counts = [told[name] for name in ("equal", "compared", "missing", "extra", "beside")]
    assert (code, counts) == (0, [True, before, 0, 0, EACH]), "rows of another program are no difference"
    assert "appends rows without a key: there is no last value per key" in refusal(stack, "users_warehouse")
    assert count() == before + EACH, "nothing is written"
