"""A project that names a database: what its server tells when it is loaded, and what stands in for that."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Project
from upsert_platform.local.database import USER, Database
from upsert_platform.mysql.connection import Connection
from upsert_platform.sync.binding import load
from upsert_platform_tests.systems.servers import Kind, server_of

pytestmark = pytest.mark.systems

PIPELINE = """source: {{type: mysql, hostname: 127.0.0.1, port: {port}, username: {user}, password: {password},
         tables: 'shop.\\.*', tables.exclude: 'shop._\\.*'}}
sink: {{type: upsert-kafka, properties.bootstrap.servers: '127.0.0.1:9092'}}
"""


def test_tables_are_found_when_the_project_is_loaded(
    tmp_path: Path, kind: Kind, start: Callable[..., Database]
) -> None:
    def loaded() -> tuple[Project, dict[str, list[str]]]:
        project, problems = load(tmp_path / "project", root=str(tmp_path / "lake"))
        told: dict[str, list[str]] = {"error": [], "warning": []}
        for problem in problems:
            assert isinstance(problem, Problem)
            told[problem.severity].append(problem.message)
        return project, told

    with start(tmp_path / "server") as database:
        server = server_of(database)
        (tmp_path / "project").mkdir()
        text = PIPELINE.format(port=server.port, user=USER, password=server.password)
        (tmp_path / "project" / "pipeline.yaml").write_text(text)
        with Connection(server) as connection:
            connection.query("CREATE DATABASE shop")
            connection.query("CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
            connection.query("CREATE TABLE shop._a_gho (id INT PRIMARY KEY)")
            assert [insert.target for insert in loaded()[0].inserts] == ["shop.a"]
            connection.query("CREATE TABLE shop.b (id INT PRIMARY KEY)")
            project, told = loaded()
            assert [insert.target for insert in project.inserts] == ["shop.a", "shop.b"]
            assert told == {"error": [], "warning": []}
            connection.query("CREATE TABLE shop.c (id INT)")
            assert "table shop.c has no primary key" in loaded()[1]["error"][0]
            connection.query("DROP TABLE shop.c")
            if kind.name == "mariadb":
                connection.query("CREATE TABLE shop.d (id UUID PRIMARY KEY)")
                assert "column 'id' has the type uuid, which is not read" in loaded()[1]["error"][0]
                connection.query("DROP TABLE shop.d")
                connection.query("CREATE TABLE shop.e (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
                assert "table shop.e is system-versioned" in loaded()[1]["error"][0]
                connection.query("DROP TABLE shop.e")
            connection.query("ALTER TABLE shop.a DROP COLUMN v, ADD COLUMN w INT")
            project, told = loaded()
            assert [column.name for column in project.tables["shop.a"].columns] == ["id", "w", "v"]
            connection.query("ALTER TABLE shop.a MODIFY w BIGINT")
            project, told = loaded()
            assert [str(column.type) for column in project.tables["shop.a"].columns] == ["INT NOT NULL", "INT", "INT"]
            assert re.search(r"column 'w' is bigint(\(20\))? and is carried as int(\(11\))?", told["warning"][0])
            assert loaded()[1] == told, "it stays so"
            connection.query("DROP TABLE shop.b")
            project, told = loaded()
            assert [insert.target for insert in project.inserts] == ["shop.a"]
            assert any("shop.b of 127.0.0.1" in text and "not there any more" in text for text in told["warning"])
    project, told = loaded()
    assert {insert.target for insert in project.inserts} >= {"shop.a"}
    assert not told["error"]
    assert any("taken to be as they were when it answered last" in text for text in told["warning"])
    assert server.password not in str(told)
