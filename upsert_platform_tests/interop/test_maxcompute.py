"""The official MaxCompute SDK for Java, unmodified: against the local server, and against what the platform writes."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.maxcompute.ddl import create_statement
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.table import MaxComputeTable, read_maxcompute_table
from upsert_platform_tests.interop.java import Java
from upsert_platform_tests.interop.maxcompute_java import MaxComputeJava
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.conftest import options_for
from upsert_platform_tests.maxcompute.declare import declare
from upsert_platform_tests.maxcompute.frames import write
from upsert_platform_tests.maxcompute.test_ddl import EVERY_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

COLUMNS = {**EVERY_TYPE, "big": "DECIMAL(38, 18)"}
CLOCK = list(COLUMNS).index("clock")
ROWS: list[tuple[Any, ...]] = [
    (
        1, "ab", "vär", "sträng \\ '\n\0\U0001f600", True, -128, 32_767, -(2**31), 1.5, -2.25,
        Decimal("-1234567890.12"), Decimal("9999999999"), dt.date(1969, 12, 31), 1_234_567_000,
        dt.datetime(1960, 1, 1, 0, 0, 0, 500_000), dt.datetime(2021, 1, 1, 1, 2, 3, 123_456),  # noqa: DTZ001
        dt.datetime(2023, 6, 16, 1, 59, 41, 116_000, tzinfo=dt.UTC), bytearray(b"\x00\xe4="), [1, None, 3],
        {"k": 2**62, "n": None}, (7, "x"), Decimal("12345678901234567890.123456789012345678"),
    ),
    (
        -(2**63) + 1, "äöüß", "x" * 9, "", False, 127, -32_768, 2**31 - 1, 3.4028234663852886e38, 5e-324,
        Decimal("0.01"), Decimal("-1"), dt.date(1, 1, 1), 0,
        dt.datetime(1, 1, 1), dt.datetime(1700, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC), bytearray(), [], {}, (None, ""),
        Decimal("-0.000000000000000001"),
    ),
    (2**63 - 1, *[None] * (len(COLUMNS) - 1)),
]  # fmt: skip


@pytest.fixture(scope="module")
def client(maxcompute_java: Java, maxcompute: ServerHandle) -> MaxComputeJava:
    return MaxComputeJava(maxcompute_java, maxcompute)


@pytest.fixture(autouse=True)
def _pyodps_reads_old_days() -> Iterator[None]:
    """It refuses days before 1928 unless it is told not to; moments are of UTC here."""
    from odps import options

    # Options have no attributes to delete, so monkeypatch cannot put them back.
    before = options.allow_antique_date, options.local_timezone
    options.allow_antique_date, options.local_timezone = True, False
    yield
    options.allow_antique_date, options.local_timezone = before


@pytest.fixture
def name() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


def declared(server: ServerHandle, name: str, *, upserts: bool, **options: str) -> MaxComputeTable:
    mode = {"upsert.write.bucket.num": "4"} if upserts else {}
    given = {
        **options_for(server, name),
        **{"sink.operation": "upsert" if upserts else "insert", "auto.create": "true"},
        **mode,
        **options,
    }
    table, problems = read_maxcompute_table(declare(COLUMNS, key=["id"] if upserts else [], options=given))
    assert table is not None, problems
    return table


def by_pyodps(server: ServerHandle, query: str) -> list[tuple[Any, ...]]:
    with server.odps().execute_sql(query).open_reader(tunnel=True) as reader:
        return sorted((tuple(record.values) for record in reader), key=repr)


@pytest.mark.parametrize(
    ("way", "api"),
    [
        ("UpsertSession", "maxstorage"),
        ("UpsertSession", "tunnel"),
        ("UploadSession", "maxstorage"),
        ("StreamUploadSession", "maxstorage"),
    ],
)
def test_rows_of_every_type_are_those_of_the_java_sdk(
    spark: SparkSession, maxcompute: ServerHandle, client: MaxComputeJava, name: str, way: str, api: str
) -> None:
    upserts = way == "UpsertSession"
    ours, theirs = f"{name}_ours", f"{name}_java"
    destination = MaxComputeDestination(declared(maxcompute, ours, upserts=upserts, **{"write.api": api}))
    destination.prepare()
    report = write(spark, destination, 1, [("U", row) for row in ROWS])
    assert (report.upserts, report.refused_count) == (len(ROWS), 0)
    destination.close()

    client.sql(create_statement(declared(maxcompute, theirs, upserts=upserts)))
    clock = {0: "00:00:00.000", 1_234_567_000: "00:20:34.567", None: None}
    client.write(way, theirs, [(*row[:CLOCK], clock[row[CLOCK]], *row[CLOCK + 1 :]) for row in ROWS])

    found = client.read(ours)
    assert len(found) == len(ROWS)
    assert "DECIMAL(38,18) 12345678901234567890.123456789012345678" in " ".join(found)
    assert found == client.read(theirs)
    assert by_pyodps(maxcompute, f"SELECT * FROM {ours}") == by_pyodps(maxcompute, f"SELECT * FROM {theirs}")
    for left, right in ((ours, theirs), (theirs, ours)):
        assert client.sql(f"SELECT * FROM {left} EXCEPT SELECT * FROM {right}") == []
    query = f"SELECT COUNT(*), MAX(big), MIN(dt), MAX(ts) FROM {theirs} WHERE id > 0"
    assert client.sql(query) == client.sql(query.replace(theirs, ours))


def test_both_write_the_same_rows_of_a_table(
    spark: SparkSession, maxcompute: ServerHandle, client: MaxComputeJava, name: str
) -> None:
    """A key lies in one bucket, whoever writes it: nothing is doubled, and either deletes the other's rows."""
    key = {
        "k1": "BIGINT", "k2": "STRING", "k3": "DECIMAL(20, 0)", "k4": "DATE", "k5": "TIMESTAMP(3)", "k6": "BOOLEAN",
        "k7": "DOUBLE", "k8": "VARCHAR(9)", "k9": "TIMESTAMP(6)", "k10": "SMALLINT",
    }  # fmt: skip
    options = {
        "sink.operation": "upsert",
        "auto.create": "true",
        "upsert.write.bucket.num": "16",
        "write.api": "tunnel",
    }
    table, problems = read_maxcompute_table(
        declare({**key, "v": "STRING"}, key=list(key), options={**options_for(maxcompute, name), **options})
    )
    assert table is not None, problems
    keys = [
        (
            number, f"é{number}", Decimal(10**19 + number), dt.date(1960, 1, 1) + dt.timedelta(days=400 * number),
            dt.datetime(1969, 12, 31, 23, 59, 59, 1000 * number), number % 2 == 0, number / 7, f"v{number}",  # noqa: DTZ001
            dt.datetime(1969, 12, 31, 23, 59, 50, 7 * number), -number,  # noqa: DTZ001
        )
        for number in range(60)
    ]  # fmt: skip
    destination = MaxComputeDestination(table)
    destination.prepare()
    write(spark, destination, 1, [("U", (*row, "ours")) for row in keys[:40]])
    with client.upsert_session(name) as session:
        stream = session.buildUpsertStream().build()
        for row in keys[20:]:
            stream.upsert(client.filled(session.newRecord(), (*row, "theirs")))
        stream.flush()
        for row in keys[:10]:
            stream.delete(client.filled(session.newRecord(), (*row, None)))
        stream.close()
        session.commit(False)
    assert client.sql(f"SELECT v, COUNT(*) FROM {name} GROUP BY v ORDER BY v") == [["ours", "10"], ["theirs", "40"]]
    write(spark, destination, 2, [("D", (*row, None)) for row in keys[50:]])
    left = destination.read(spark).collect()
    assert sorted(row.k1 for row in left) == list(range(10, 50))
    assert {tuple(row)[:-1] for row in left} == set(keys[10:50])
    destination.close()
