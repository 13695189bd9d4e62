"""Topics of ApsaraMQ for Kafka: requests as Alibaba's OpenAPI wants them, against a server that checks them."""

from __future__ import annotations

import hashlib
import hmac
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from pydantic import SecretStr

from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka import apsara
from upsert_platform.kafka.apsara import ApsaraInstance, TopicProperties
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.modes import CleanupPolicy, StorageEngine
from upsert_platform.kafka.topics import create_topic, describe_topic
from upsert_platform_tests.kafka.answering import Asked, answering
from upsert_platform_tests.kafka.tables import declare, problems_of, read
from upsert_platform_tests.kafka.test_table import APSARA

DONE = (200, b'{"Code":200,"Message":"operation success.","Success":true,"RequestId":"r-1"}')


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsara, "SECONDS_BETWEEN", 0.0)


def instance(endpoint: str, topics: TopicProperties | None = None) -> ApsaraInstance:
    keys = SecretStr("my-id"), SecretStr("my-secret")
    return ApsaraInstance("alikafka-1", "cn-hangzhou", endpoint, *keys, topics or TopicProperties())


def parameters(asked: Asked) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(asked.path).query, keep_blank_values=True))


def signature(asked: Asked, secret: str) -> str:
    """What signs a request (Alibaba Cloud, signature version 3)."""
    path, _, query = asked.path.partition("?")
    found = re.search(r"SignedHeaders=([^,]+)", asked.headers["authorization"])
    assert found is not None
    names = found[1].split(";")
    canonical_query = "&".join(
        f"{quote(name, safe='~')}={quote(value, safe='~')}"
        for name, value in sorted(parse_qsl(query, keep_blank_values=True))
    )
    headers = "".join(f"{name}:{asked.headers[name].strip()}\n" for name in names)
    body = hashlib.sha256(asked.body).hexdigest()
    assert asked.headers["x-acs-content-sha256"] == body
    canonical = "\n".join((asked.method, path, canonical_query, headers, ";".join(names), body))
    text = f"ACS3-HMAC-SHA256\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def test_a_topic_is_asked_for_with_its_properties() -> None:
    topics = TopicProperties(
        StorageEngine.LOCAL, CleanupPolicy.COMPACT, "orders, last value", (("team", "a b"), ("env", "test"))
    )
    with answering(lambda asked: DONE) as server:
        instance(server.url, topics).create_topic("orders", partitions=12, replication=3)
    (asked,) = server.asked
    assert asked.headers["authorization"].startswith("ACS3-HMAC-SHA256 Credential=my-id,")
    assert asked.headers["authorization"].endswith(f"Signature={signature(asked, 'my-secret')}")
    assert asked.headers["x-acs-action"] == "CreateTopic"
    assert asked.headers["x-acs-version"] == "2019-09-16"
    assert {name: value.lower() for name, value in parameters(asked).items()} == {
        "InstanceId": "alikafka-1",
        "RegionId": "cn-hangzhou",
        "Topic": "orders",
        "Remark": "orders, last value",
        "PartitionNum": "12",
        "ReplicationFactor": "3",
        "LocalTopic": "true",
        "CompactTopic": "true",
        "Tag.1.Key": "team",
        "Tag.1.Value": "a b",
        "Tag.2.Key": "env",
        "Tag.2.Value": "test",
    }
    assert "my-secret" not in asked.path + str(asked.headers) + asked.body.decode()


def test_what_is_not_declared_is_the_cheapest_topic() -> None:
    with answering(lambda asked: DONE) as server:
        instance(server.url).create_topic("orders", partitions=None, replication=None)
        instance(server.url).for_control().create_topic("control", partitions=1, replication=None)
    table, control = (parameters(asked) for asked in server.asked)
    assert (table["LocalTopic"], table["CompactTopic"]) == ("False", "False")
    assert (control["LocalTopic"], control["CompactTopic"]) == ("True", "True")
    assert "PartitionNum" not in table


@pytest.mark.parametrize("storage", [StorageEngine.CLOUD, StorageEngine.LOCAL])
def test_a_control_topic_takes_the_storage_that_the_instance_offers(
    storage: StorageEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(asked: Asked) -> tuple[int, bytes]:
        if parameters(asked)["LocalTopic"] == "True":
            return 400, b'{"Code":"LOCAL_TOPIC_NOT_SUPPORTED","Message":"no local storage","RequestId":"r"}'
        return DONE

    control = instance("http://unused", TopicProperties(storage, CleanupPolicy.COMPACT)).for_control()
    with answering(answer) as server:
        asking = replace(control, endpoint=server.url)
        if storage is StorageEngine.LOCAL:  # it was declared so
            with pytest.raises(EndpointError, match="LOCAL_TOPIC_NOT_SUPPORTED"):
                asking.create_topic("control", partitions=2, replication=None)
            return
        asking.create_topic("control", partitions=2, replication=None)
    first, second = (parameters(asked) for asked in server.asked)
    assert (first["LocalTopic"], first["CompactTopic"]) == ("True", "True")
    assert (second["LocalTopic"], second["CompactTopic"], second["PartitionNum"]) == ("False", "False", "2")
    assert "the position of the table is forgotten" in caplog.text


def test_a_topic_that_exists_is_not_asked_for(make_topic: Callable[..., str], kafka_bootstrap: str) -> None:
    name = make_topic()
    with answering(lambda asked: DONE) as server:
        create_topic(
            KafkaEndpoint(kafka_bootstrap), name, partitions=1, replication=1, config={}, apsara=instance(server.url)
        )
    assert server.asked == []


def test_one_topic_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsara, "SECONDS_BETWEEN", 0.2)
    times: list[float] = []

    def answer(asked: Asked) -> tuple[int, bytes]:
        times.append(time.monotonic())
        return DONE

    with answering(answer) as server:
        for number in range(3):
            instance(server.url).create_topic(f"orders-{number}", partitions=None, replication=None)
    assert all(later - earlier >= 0.19 for earlier, later in pairwise(times))


def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "alibabacloud_alikafka20190916.models", None)
    with pytest.raises(EndpointError, match=r"pip install 'upsert-platform\[apsara\]'"):
        instance("http://127.0.0.1:1").create_topic("orders", partitions=None, replication=None)


def test_a_throttled_request_is_sent_again() -> None:
    answers = [(400, b'{"Code":"Throttling.User","Message":"slow down"}')] * 2 + [DONE]
    with answering(lambda asked: answers.pop(0)) as server:
        instance(server.url).create_topic("orders", partitions=None, replication=None)
    nonces = {asked.headers["x-acs-signature-nonce"] for asked in server.asked}
    assert len(nonces) == 3


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(
            (404, b'{"Code":"InvalidAccessKeyId.NotFound","Message":"my-id is not found","RequestId":"r-7"}'),
            "InvalidAccessKeyId.NotFound: *** is not found (request r-7)",
            id="unknown-key",
        ),
        pytest.param((200, b'{"Code":500,"Message":"no quota","Success":false}'), "500: no quota", id="no-success"),
        pytest.param((502, b"<html>"), "does not answer as the OpenAPI does", id="no-json"),
    ],
)
def test_a_refusal_is_told_without_secrets(answer: tuple[int, bytes], text: str) -> None:
    with answering(lambda asked: answer) as server, pytest.raises(EndpointError) as caught:
        instance(server.url).create_topic("orders", partitions=None, replication=None)
    assert text in str(caught.value)
    assert "my-secret" not in str(caught.value) + repr(instance(server.url))
    assert "my-id" not in str(caught.value)


def test_an_unreachable_control_plane_and_a_bad_name() -> None:
    with pytest.raises(EndpointError, match=r"'aliyun\.kafka\.endpoint'"):
        instance("http://127.0.0.1:1").create_topic("orders", partitions=None, replication=None)
    with pytest.raises(EndpointError, match="3 to 64"):
        instance("http://127.0.0.1:1").create_topic("or.ders", partitions=None, replication=None)


def test_declared_options() -> None:
    settings = read(declare(**APSARA), writes=True).settings
    assert settings.apsara is not None  # type: ignore[attr-defined]
    (warning,) = problems_of(declare(**APSARA), writes=True, severity="warning")
    assert "forgets values that are still current" in warning
    compacted = {"aliyun.kafka.topic.storage": "local", "aliyun.kafka.topic.cleanup-policy": "compact"}
    assert problems_of(declare(**APSARA, **compacted), writes=True, severity="warning") == []
    assert "hunter2" not in repr(settings) + repr(settings.apsara)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"aliyun.kafka.topic.cleanup-policy": "compact"}, "needs 'aliyun.kafka.topic.storage' = 'local'"),
        ({"aliyun.kafka.topic.tags": "team"}, "takes key:value"),
        ({"aliyun.kafka.topic.storage": "tape"}, "aliyun.kafka.topic.storage"),
    ],
)
def test_refused_options(options: dict[str, str], text: str) -> None:
    (message,) = problems_of(declare(**APSARA, **options), writes=True)
    assert text in message


def test_a_destination_creates_both_its_topics_there(
    destination_of: Callable, make_topic: Callable[..., str], name: str
) -> None:
    def create(asked: Asked) -> tuple[int, bytes]:
        make_topic(name=parameters(asked)["Topic"], config={"cleanup.policy": "compact"})
        return DONE

    with answering(create) as server:
        destination = destination_of(name, **{**APSARA, "aliyun.kafka.endpoint": server.url})
        destination.prepare()
        destination.prepare()
    assert [parameters(asked)["Topic"] for asked in server.asked] == [name, f"control-{name}"]
    found = describe_topic(destination.table.endpoint, name)
    assert found is not None
    assert found.compacted
