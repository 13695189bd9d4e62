"""A login by Kerberos is checked where it is declared: what the client can do, and a job's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.core.errors import Problem
from upsert_platform.declarations.project import load_project
from upsert_platform.kafka.endpoint import client_has_kerberos
from upsert_platform.kafka.table import KafkaTable, read_kafka_table
from upsert_platform.sync.connectors import CONNECTORS

LOGIN = (
    ", 'properties.security.protocol' = 'SASL_PLAINTEXT', 'properties.sasl.mechanism' = 'GSSAPI',"
    " 'properties.sasl.kerberos.service.name' = 'hadoop'"
)
JOB = """SET 'security.kerberos.login.principal' = 'hadoop/10.0.0.1@EMR';
SET 'security.kerberos.login.keytab' = 'emr.keytab';
SET 'security.kerberos.login.contexts' = 'KafkaClient';
"""


def declared(tmp_path: Path, *, settings: str = "", more: str = LOGIN) -> tuple[KafkaTable | None, list[Problem]]:
    """A table as a project declares it, and everything found."""
    sql = f"""{settings}
    CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('connector' = 'upsert-kafka', 'topic' = 't',
      'properties.bootstrap.servers' = '127.0.0.1:1', 'key.format' = 'json', 'value.format' = 'json'{more});"""
    (tmp_path / "t.sql").write_text(sql, "utf-8")
    project, problems = load_project(tmp_path, connectors=CONNECTORS)
    table, found = read_kafka_table(project.tables["t"])
    return table, [*(problem for problem in problems if "neither read nor written" not in problem.message), *found]


@pytest.mark.skipif(client_has_kerberos(), reason="the client has Kerberos")
def test_a_client_without_kerberos_is_warned_of_with_the_way_to_build_one(tmp_path: Path) -> None:
    table, (problem,) = declared(tmp_path)
    assert table is not None
    assert problem.severity == "warning"
    assert "SASL GSSAPI (Kerberos) fails with the installed client" in problem.message
    assert "pip install --no-binary confluent-kafka confluent-kafka" in problem.message
    _, (problem,) = declared(tmp_path, more=LOGIN.replace("'properties.sasl.mechanism' = 'GSSAPI', ", ""))
    assert "'properties.sasl.mechanism' is not set, which means GSSAPI" in problem.message
    assert declared(tmp_path, more=LOGIN.replace("GSSAPI", "PLAIN"))[1] == []


def test_settings_of_a_jobs_login_are_options_of_the_tables_that_log_in_so(tmp_path: Path) -> None:
    table, problems = declared(tmp_path, settings=JOB)
    assert table is not None
    assert not [problem for problem in problems if "SET" in problem.message]
    assert table.properties.common["sasl.kerberos.principal"] == "hadoop/10.0.0.1@EMR"
    assert table.properties.common["sasl.kerberos.keytab"] == "emr.keytab"
    own = LOGIN + ", 'security.kerberos.login.keytab' = 'own.keytab'"
    table, _ = declared(tmp_path, settings=JOB, more=own)
    assert table is not None
    assert table.properties.common["sasl.kerberos.keytab"] == "own.keytab"
    _, problems = declared(tmp_path, settings="SET 'security.kerberos.login.keytap' = 'k';")
    (found,) = [problem for problem in problems if problem.severity == "error"]
    assert "'keytab'" in found.message
    assert found.location is not None
    assert found.location.line == 1


def test_settings_of_a_login_that_no_table_makes_are_warned_of(tmp_path: Path) -> None:
    _, problems = declared(tmp_path, settings=JOB, more="")
    assert [problem.severity for problem in problems] == ["warning"] * 3
    assert all("has no effect: no table of this file logs in by Kerberos" in problem.message for problem in problems)


def test_the_login_of_hadoop_is_refused_with_the_reason(tmp_path: Path) -> None:
    name = "fs.hdfs.hadoop.security.authentication"
    _, problems = declared(tmp_path, more=f", '{name}' = 'kerberos'")
    (found,) = [problem for problem in problems if problem.severity == "error"]
    assert f"option '{name}' is refused: it is the login of a Flink job to HDFS" in found.message
    _, (warned,) = declared(tmp_path, settings=f"SET '{name}' = 'kerberos';", more="")
    assert "no connector reads or writes files through Hadoop" in warned.message
