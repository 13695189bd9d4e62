"""Roles that are assumed, keys of the environment, and how they are kept fresh (specification 1.2)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore import credentials
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.credentials import FreshKey, Key, environment_key
from upsert_platform.tablestore.failures import NoAnswerError, ServiceError
from upsert_platform.tablestore.schema import prepare_table
from upsert_platform.tablestore.table import TablestoreTable, read_tablestore_table
from upsert_platform.tablestore.writer import writing_task
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.declared import change_batch, declare
from upsert_platform_tests.tablestore.sts import StsServer, sts_server
from upsert_platform_tests.writing.leases import terms

HIDDEN = "hidden-secret"


@pytest.fixture(scope="module")
def sts(server: ServerHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StsServer]:
    """An STS API that gives the key of the server."""
    folder = tmp_path_factory.mktemp("sts")
    gives = (server.access_key_id, server.access_key_secret)
    with pytest.MonkeyPatch.context() as patch, sts_server(folder, keys={"user": HIDDEN}, gives=gives) as found:
        patch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
        yield found


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """No key is left from the test before."""
    credentials._fresh.cache_clear()
    credentials._chain.cache_clear()


def _table(
    server: ServerHandle, sts: StsServer, options: Mapping[str, str], *, name: str = "assumed"
) -> TablestoreTable:
    sts.refusal = None
    sts.asked.clear()
    given = {
        "tablestore.endpoint": server.endpoint,
        "tablestore.auth.mode": "STS",
        "tablestore.access.key.id": "",
        "tablestore.access.key.secret": "",
        "account.id": "123",
        "role.name": "writer",
        "sts.endpoint": sts.address,
        "auto.create": "true",
        "retry.deadline": "2 s",
        "control.table": f"control_{name}",
    }
    table, problems = read_tablestore_table(declare({"id": "STRING"}, ["id"], {**given, **options}, name=name))
    assert table is not None, problems
    return table


def _write(table: TablestoreTable) -> list[dict[str, Any]]:
    client = Client.of(table.settings)
    prepare_table(client, table)
    client.close()
    sent: TablestoreTable = pickle.loads(pickle.dumps(table))
    task = writing_task(sent, terms=terms())
    return [row for batch in task(iter([change_batch(table, [{"id": "a"}])])) for row in batch.to_pylist()]


KEYS = {"tablestore.access.key.id": "user", "tablestore.access.key.secret": HIDDEN}


def test_a_role_is_assumed_once_for_driver_and_task(server: ServerHandle, sts: StsServer) -> None:
    (outcome,) = _write(_table(server, sts, {**KEYS, "region": "cn-hangzhou"}))
    assert json.loads(outcome["stats"])["puts"] == 1
    (asked,) = sts.asked
    assert (asked["Action"], asked["AccessKeyId"], asked["DurationSeconds"]) == ("AssumeRole", "user", "3600")
    assert (asked["RoleArn"], asked["RoleSessionName"]) == ("acs:ram::123:role/writer", "kafka-session-123")
    assert "SecurityToken" not in asked


def test_the_connectors_variables_name_the_key_that_assumes(
    server: ServerHandle, sts: StsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCESS_ID", "user")
    monkeypatch.setenv("ACCESS_KEY", HIDDEN)
    _write(_table(server, sts, {}))
    assert sts.asked[0]["AccessKeyId"] == "user"


def test_a_temporary_key_may_assume_a_role(server: ServerHandle, sts: StsServer) -> None:
    _write(_table(server, sts, {**KEYS, "tablestore.sts.token": "mine"}))
    assert sts.asked[0]["SecurityToken"] == "mine"


def test_a_role_is_assumed_anew_after_its_time(server: ServerHandle, sts: StsServer) -> None:
    table = _table(server, sts, {**KEYS, "client.time.out.ms": "1"})
    _write(table)
    assert len(sts.asked) > 1


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "NoPermission", "NoPermission: the STS API gave no credentials for role 'acs:ram::123:role/writer'"),
        (503, "ServiceUnavailable", "the STS API answered 503"),
    ],
)
def test_a_refusal_is_told_without_what_was_signed(
    server: ServerHandle, sts: StsServer, status: int, code: str, message: str
) -> None:
    table = _table(server, sts, {**KEYS, "retry.deadline": "200 ms"})
    sts.refusal = (status, code)
    task = writing_task(table, terms=terms())
    with pytest.raises(DestinationError) as raised:
        list(task(iter([change_batch(table, [{"id": "a"}])])))
    assert message in str(raised.value)
    assert "signed with" not in str(raised.value)
    assert HIDDEN not in repr(raised.value) + repr(table) + repr(table.settings.role)


def test_a_wrong_secret_is_refused(server: ServerHandle, sts: StsServer, capfd: pytest.CaptureFixture[str]) -> None:
    table = _table(server, sts, {**KEYS, "tablestore.access.key.secret": "wrong"})
    with pytest.raises(ServiceError, match="SignatureDoesNotMatch"):
        _write(table)
    assert "server string" not in "".join(capfd.readouterr())


def test_nobody_answers(server: ServerHandle, sts: StsServer) -> None:
    with pytest.raises(NoAnswerError, match="no answer from the STS API"):
        _write(_table(server, sts, {**KEYS, "sts.endpoint": "127.0.0.1:1", "retry.deadline": "100 ms"}))


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment without any key."""
    from alibabacloud_credentials.utils import auth_util

    for name in ("access_key_id", "access_key_secret", "security_token", "credentials_uri"):
        monkeypatch.setattr(auth_util, f"environment_{name}", None)
    monkeypatch.setattr(auth_util, "environment_ecs_metadata_disabled", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


def test_keys_of_the_environments_variables(server: ServerHandle, sts: StsServer, bare: pytest.MonkeyPatch) -> None:
    from alibabacloud_credentials.utils import auth_util

    bare.setattr(auth_util, "environment_access_key_id", server.access_key_id)
    bare.setattr(auth_util, "environment_access_key_secret", server.access_key_secret)
    bare.setattr(auth_util, "environment_security_token", "a-token")
    assert _write(_table(server, sts, {"account.id": "", "role.name": "", "sts.endpoint": ""}))
    assert sts.asked == []
    found = environment_key()
    assert found.token == SecretStr("a-token")


def test_the_role_of_the_machine(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    from alibabacloud_credentials.utils import auth_util

    bare.setattr(auth_util, "environment_ecs_metadata_disabled", "false")
    with sts_server(tmp_path, keys={}, gives=("id", "secret"), tls=False) as machine:
        # The address of the metadata service is the same on every machine; a proxy stands in for it.
        bare.setenv("HTTP_PROXY", f"http://{machine.address}")
        found = environment_key()
    assert (found.id, found.secret, found.token) == ("id", SecretStr("secret"), SecretStr("token-1"))


def test_an_environment_without_any_key_is_told(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServiceError, match="no credentials for the environment were found"):
        environment_key()


class _Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def _fetching(clock: _Clock, *, lifetime: float, failing: list[bool]) -> tuple[Callable[[], Key], list[float]]:
    fetched: list[float] = []

    def fetch() -> Key:
        fetched.append(clock.time)
        if failing[0]:
            raise NoAnswerError("down")
        return Key(f"k{len(fetched)}", SecretStr("s"), SecretStr("t"), clock.time + lifetime)

    return fetch, fetched


def test_a_key_is_fetched_anew_before_it_ends_and_kept_while_that_fails() -> None:
    clock, failing = _Clock(), [False]
    fetch, fetched = _fetching(clock, lifetime=3600, failing=failing)
    key = FreshKey(fetch, longest=86_400, now=clock)
    assert [key.get().id for _ in range(3)] == ["k1", "k1", "k1"]
    clock.time += 3299
    assert key.get().id == "k1"
    clock.time += 2
    failing[0] = True
    assert [key.get().id, key.get().id] == ["k1", "k1"]
    assert len(fetched) == 2
    clock.time += 6
    failing[0] = False
    assert key.get().id == "k3"
    clock.time += 3700
    failing[0] = True
    with pytest.raises(NoAnswerError):
        key.get()


def test_short_keys_and_a_longest_age() -> None:
    clock = _Clock()
    fetch, fetched = _fetching(clock, lifetime=8, failing=[False])
    key = FreshKey(fetch, longest=86_400, now=clock)
    key.get()
    clock.time += 5
    key.get()
    clock.time += 2
    key.get()
    assert fetched == [1000.0, 1007.0]
    fetch, fetched = _fetching(clock, lifetime=3600, failing=[False])
    key = FreshKey(fetch, longest=10, now=clock)
    key.get()
    clock.time += 11
    key.get()
    assert len(fetched) == 2
