"""Groups of requests: one commit for all, a request that fails undoes itself alone, a failed commit refuses all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from tablestore.plainbuffer.plain_buffer_builder import PlainBufferBuilder

from upsert_platform.local.tablestore.engine import Engine
from upsert_platform.local.tablestore.faults import Faults
from upsert_platform.local.tablestore.http import Request
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.metrics import Metrics
from upsert_platform.local.tablestore.service import Service
from upsert_platform.local.tablestore.signature import Signer
from upsert_platform_tests.local.tablestore.wire import sign


class Running:
    """A service without a network."""

    def __init__(self, path: Path) -> None:
        self.engine = Engine(path, synchronous="OFF")
        self.instance = Instance("inst", self.engine, Faults())
        self.metrics = Metrics()
        signer = Signer(access_key_id="id", access_key_secret=SecretStr("secret"), instance="inst")
        self.service = Service(self.instance, signer, self.metrics)

    def serve(self, *calls: tuple[str, Any]) -> list[int]:
        works = []
        for operation, message in calls:
            body = message.SerializeToString()
            headers = sign(operation, body, key="id", secret="secret", instance="inst")
            works.append(self.service.accept(Request("POST", f"/{operation}", "", headers, body)))
        return [reply.status for reply in self.service.serve(works)]

    def keys(self) -> list[bytes]:
        table = self.engine.tables["t"]
        return [key[1:-2] for key, _, _ in self.engine.scan(table, b"", b"\xff", reverse=False)]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    assert running.serve(create("t")) == [200]
    yield running
    running.engine.close()


def create(name: str) -> tuple[str, Any]:
    request = pb.CreateTableRequest()
    request.table_meta.table_name = name
    request.table_meta.primary_key.add(name="k", type=pb.STRING)
    request.reserved_throughput.capacity_unit.read = 0
    return "CreateTable", request


def put(key: str, existence: int = pb.IGNORE) -> tuple[str, Any]:
    row = bytes(PlainBufferBuilder.serialize_for_put_row([("k", key)], [("n", 1)]))
    request = pb.PutRowRequest(table_name="t", row=row)
    request.condition.row_existence = existence
    return "PutRow", request


def test_a_group_is_one_commit(running: Running) -> None:
    before = running.metrics.commits
    assert running.serve(put("a"), put("b"), put("missing", pb.EXPECT_EXIST), put("c")) == [200, 200, 403, 200]
    assert running.metrics.commits - before == 1
    assert running.keys() == [b"a", b"b", b"c"]


def test_reads_alone_need_no_commit(running: Running) -> None:
    before = running.metrics.commits
    assert running.serve(("ListTable", pb.ListTableRequest())) == [200]
    assert running.metrics.commits == before


def test_a_failed_commit_refuses_the_group_and_undoes_it(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(running.engine, "commit", fail)
        assert running.serve(put("a"), create("u")) == [500, 500]
    assert (running.keys(), list(running.engine.tables)) == ([], ["t"])
    assert running.serve(put("b")) == [200]
    assert running.keys() == [b"b"]


def test_a_defect_is_answered_and_the_next_request_is_served(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("defect")

    with monkeypatch.context() as patched:
        patched.setattr(running.engine, "write", fail)
        assert running.serve(put("a")) == [500]
    assert running.serve(put("b")) == [200]
    assert running.keys() == [b"b"]
