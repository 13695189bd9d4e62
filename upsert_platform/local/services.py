"""The servers that can run locally, each with what it needs to start and what tells clients where it is."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from upsert_platform.local.database import USER, answers_mysql
from upsert_platform.local.kafka import Listener, answers_kafka, broker_server
from upsert_platform.local.mariadb import mariadb_server
from upsert_platform.local.mysql import mysql_server
from upsert_platform.local.postgres import DATABASE, answers_postgres, postgres_server
from upsert_platform.local.process import Server
from upsert_platform.local.registry import answers_registry, registry_server, registry_url

_HOST = "127.0.0.1"
INSTANCE = "local"
PROJECT = "local"


@dataclass(frozen=True, slots=True)
class Keys:
    """Access keys of the Tablestore and MaxCompute servers; made once per data directory."""

    tablestore_id: str
    tablestore_secret: str = field(repr=False)
    maxcompute_id: str
    maxcompute_secret: str = field(repr=False)
    mysql_password: str = field(default="", repr=False)
    postgres_password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Service:
    """A kind of local server.

    Attributes:
        name: as users write it behind ``--only``.
        server: its directory, port and the keys to what is run.
        answers: its port to whether it serves.
        variables: its port and the keys to the environment variables that clients read.
        others: servers that can run instead, by name.
    """

    name: str
    answers: Callable[[int], bool]
    server: Callable[[Path, int, Keys], Server]
    variables: Callable[[int, Keys], Mapping[str, str]]
    others: Mapping[str, Callable[[Path, int, Keys], Server]] = field(default_factory=dict)


def _kafka(home: Path, port: int, keys: Keys) -> Server:
    return broker_server(home, listeners=[Listener(port)])


def _kafka_variables(port: int, keys: Keys) -> Mapping[str, str]:
    return {"UPSERT_KAFKA_BOOTSTRAP_SERVERS": f"{_HOST}:{port}"}


def _tablestore(home: Path, port: int, keys: Keys) -> Server:
    return Server(
        name="the Tablestore server",
        command=_module("tablestore", home, port, "--instance", INSTANCE, "--access-key-id", keys.tablestore_id),
        home=home,
        port=port,
        answers=lambda: is_healthy(port),
        environment={"UPSERT_TABLESTORE_ACCESS_KEY_SECRET": keys.tablestore_secret},
    )


def _tablestore_variables(port: int, keys: Keys) -> Mapping[str, str]:
    return {
        "UPSERT_TABLESTORE_ENDPOINT": f"http://{_HOST}:{port}",
        "UPSERT_TABLESTORE_INSTANCE": INSTANCE,
        "UPSERT_TABLESTORE_ACCESS_KEY_ID": keys.tablestore_id,
        "UPSERT_TABLESTORE_ACCESS_KEY_SECRET": keys.tablestore_secret,
    }


def _maxcompute(home: Path, port: int, keys: Keys) -> Server:
    return Server(
        name="the MaxCompute server",
        command=_module("maxcompute", home, port, "--project", PROJECT, "--access-id", keys.maxcompute_id),
        home=home,
        port=port,
        answers=lambda: is_healthy(port),
        environment={"UPSERT_MAXCOMPUTE_ACCESS_KEY": keys.maxcompute_secret},
    )


def _maxcompute_variables(port: int, keys: Keys) -> Mapping[str, str]:
    return {
        "UPSERT_MAXCOMPUTE_ENDPOINT": f"http://{_HOST}:{port}",
        "UPSERT_MAXCOMPUTE_PROJECT": PROJECT,
        "UPSERT_MAXCOMPUTE_ACCESS_ID": keys.maxcompute_id,
        "UPSERT_MAXCOMPUTE_ACCESS_KEY": keys.maxcompute_secret,
    }


def _registry(home: Path, port: int, keys: Keys) -> Server:
    return registry_server(home, port=port)


def _registry_variables(port: int, keys: Keys) -> Mapping[str, str]:
    return {"UPSERT_SCHEMA_REGISTRY_URL": registry_url(port)}


def _mariadb(home: Path, port: int, keys: Keys) -> Server:
    return mariadb_server(home, port=port, password=keys.mysql_password)


def _mysql(home: Path, port: int, keys: Keys) -> Server:
    return mysql_server(home, port=port, password=keys.mysql_password)


def _mysql_variables(port: int, keys: Keys) -> Mapping[str, str]:
    return {
        "UPSERT_MYSQL_HOST": _HOST,
        "UPSERT_MYSQL_PORT": str(port),
        "UPSERT_MYSQL_USER": USER,
        "UPSERT_MYSQL_PASSWORD": keys.mysql_password,
    }


def _postgres(home: Path, port: int, keys: Keys) -> Server:
    return postgres_server(home, port=port, password=keys.postgres_password)


def _postgres_variables(port: int, keys: Keys) -> Mapping[str, str]:
    return {
        "UPSERT_POSTGRES_URL": f"jdbc:postgresql://{_HOST}:{port}/{DATABASE}",
        "UPSERT_POSTGRES_USER": USER,
        "UPSERT_POSTGRES_PASSWORD": keys.postgres_password,
    }


def _module(name: str, home: Path, port: int, *arguments: str) -> tuple[str, ...]:
    return (
        *(sys.executable, "-P", "-m", f"upsert_platform.local.{name}", "--data", str(home / "data")),
        *("--host", _HOST, "--port", str(port), *arguments),
    )


def is_healthy(port: int) -> bool:
    """Return whether GET /healthz answers 200 on the port of 127.0.0.1, without a proxy."""
    connection = http.client.HTTPConnection(_HOST, port, timeout=2.0)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


SERVICES: Mapping[str, Service] = {
    "kafka": Service("kafka", answers_kafka, _kafka, _kafka_variables),
    "tablestore": Service("tablestore", is_healthy, _tablestore, _tablestore_variables),
    "maxcompute": Service("maxcompute", is_healthy, _maxcompute, _maxcompute_variables),
    "registry": Service("registry", answers_registry, _registry, _registry_variables),
    "mysql": Service("mysql", answers_mysql, _mariadb, _mysql_variables, {"mysql": _mysql}),
    "postgres": Service("postgres", answers_postgres, _postgres, _postgres_variables),
}
MYSQL = "mysql"
MYSQL_SERVERS = ("mariadb", "mysql")
"""Servers of the service `mysql`, the one that it is by default first."""
DEFAULT_SERVERS: Mapping[str, str] = {MYSQL: MYSQL_SERVERS[0]}
"""Services that are one of several servers, to the one that they are unless another is asked for."""
# MariaDB and PostgreSQL come up when asked for: they have to be installed. MySQL is a download of 50 MB.
# The registry is for those who use the Confluent formats: it is a download of 104 MB, so it comes up when asked for.
DEFAULT_SERVICES = ("kafka", "tablestore", "maxcompute")
