from __future__ import annotations

import ssl

import pytest

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Options
from upsert_platform.mysql.columns import ZeroDates
from upsert_platform.mysql.connection import TlsMode
from upsert_platform.mysql.options import MySqlSource, read_source

PLACE = SourceLocation("pipeline.yaml", 1)
LEAST = {"hostname": "h", "username": "u", "password": "hunter2", "tables": r"shop.\.*"}


def read(**more: str) -> tuple[MySqlSource | None, list[Problem]]:
    return read_source(Options({**LEAST, **more}), location=PLACE)


def test_the_documents_source_is_read() -> None:
    found, problems = read(name="MySQL Source", port="3307", **{"server-id": "8601-8604"})
    assert found is not None
    assert [str(problem) for problem in problems] == [
        "pipeline.yaml:1: warning: source: 'name' has no effect: it is shown as the description of the topics"
    ]
    assert str(found.server) == "h:3307"
    assert found.server_ids == range(8601, 8605)
    assert found.selection.has("shop", "orders")
    assert "hunter2" not in repr(found) + repr(found.server)


def test_choices_of_types_and_tls() -> None:
    found, problems = read(
        **{
            "treat-tinyint1-as-boolean.enabled": "false",
            "use.legacy.json.format": "false",
            "zero-dates": "FAIL",
            "jdbc.properties.sslMode": "VERIFY_CA",
        }
    )
    assert problems == []
    assert found is not None
    rules = found.type_rules
    assert (rules.tinyint1_as_boolean, rules.legacy_json, rules.zero_dates) == (False, False, ZeroDates.FAIL)
    assert found.server.tls is TlsMode.VERIFY_CA


@pytest.mark.parametrize(
    ("mode", "verified", "named"),
    [("required", False, False), ("verify_ca", True, False), ("verify_identity", True, True)],
)
def test_what_a_certificate_is_asked_by_the_systems_authorities(mode: str, verified: bool, named: bool) -> None:
    found, _ = read(**{"tls.mode": mode})
    assert found is not None
    context = found.server.tls_arguments()["ssl"]
    assert (context.verify_mode is ssl.CERT_REQUIRED, context.check_hostname) == (verified, named)
    assert bool(context.get_ca_certs()) <= verified


REFUSED = [
    ({"scan.startup.mode": "later"}, "option 'scan.startup.mode'"),
    ({"scan.startup.mode": "timestamp"}, "'timestamp' needs 'scan.startup.timestamp-millis'"),
    ({"scan.startup.timestamp-millis": "5"}, "'timestamp' is what 'scan.startup.timestamp-millis' goes with"),
    ({"scan.startup.specific-offset.pos": "4"}, "is what 'scan.startup.specific-offset.pos' goes with"),
    ({"scan.startup.specific-offset.gtid-set": "a:1-2"}, "a log is entered by file and position"),
    ({"scan.startup.specific-offset.skip-rows": "2"}, "a transaction is read whole"),
    ({"scan.incremental.snapshot.chunk.key-column": "x"}, "chunks by another column"),
    ({"scan.incremental.snapshot.backfill.skip": "true"}, "the log is always read"),
    ({"metadata.list": "op_ts"}, "metadata columns are not carried"),
    ({"debezium.snapshot.mode": "never"}, "is an option of Debezium"),
    ({"jdbc.properties.useCompression": "true"}, "is an option of the JDBC driver"),
    ({"sever-id": "1"}, "unknown option 'sever-id'; did you mean 'server-id'?"),
    ({"server-id": "9-3"}, "takes a number from 1 to"),
    ({"server-id": "0"}, "takes a number from 1 to"),
    ({"tables": "orders"}, "has 1 parts; a schema and a table"),
    ({"tables": " , "}, "'tables' names no table"),
    ({"tls.ca": "/ca.pem"}, "'tls.ca' needs 'tls.mode'"),
    ({"port": "0"}, "option 'port'"),
]


@pytest.mark.parametrize(("more", "told"), REFUSED)
def test_what_is_refused_has_a_reason(more: dict[str, str], told: str) -> None:
    found, problems = read(**more)
    assert found is None
    assert [problem.severity for problem in problems] == ["error"]
    assert told in problems[0].message
    assert "hunter2" not in str(problems)


def test_what_is_off_anyway_may_be_switched_off() -> None:
    names = ("scan.incremental.snapshot.backfill.skip", "include-comments.enabled")
    found, problems = read(**dict.fromkeys(names, "false"))
    assert found is not None
    assert problems == []


def test_options_that_something_else_replaces_are_told_in_a_line() -> None:
    found, problems = read(**{"connection.pool.size": "20", "server-time-zone": "UTC"})
    assert found is not None
    assert [problem.severity for problem in problems] == ["warning", "warning"]
    assert "every task that reads has one connection" in problems[0].message
