"""Topics of ApsaraMQ for Kafka: requests as Alibaba's OpenAPI wants them, against a server that checks them."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl

import pytest
from pydantic import SecretStr

from upsert_platform.errors import EndpointError
from upsert_platform.kafka import apsara
from upsert_platform.kafka.apsara import ApsaraInstance, signed_parameters
from upsert_platform.kafka.topics import describe_topic
from upsert_platform_tests.kafka.answering import Asked, answering
from upsert_platform_tests.kafka.tables import declare, problems_of, read
from upsert_platform_tests.kafka.test_table import APSARA

DONE = (200, b'{"Code":200,"Message":"operation success.","Success":true,"RequestId":"r-1"}')


def instance(endpoint: str) -> ApsaraInstance:
    return ApsaraInstance("alikafka-1", "cn-hangzhou", endpoint, SecretStr("my-id"), SecretStr("my-secret"))


def parameters(asked: Asked) -> dict[str, str]:
    return dict(parse_qsl(asked.body.decode(), keep_blank_values=True))


def test_the_signature_is_that_of_the_published_example() -> None:
    given = {
        "Timestamp": "2016-02-23T12:46:24Z",
        "Format": "XML",
        "AccessKeyId": "testid",
        "Action": "DescribeRegions",
        "SignatureMethod": "HMAC-SHA1",
        "SignatureNonce": "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf",
        "Version": "2014-05-26",
        "SignatureVersion": "1.0",
    }
    assert signed_parameters(given, "testsecret", method="GET")["Signature"] == "OLeaidS1JvxuMvnyHOwuJ+uX5qY="


def test_a_topic_is_asked_for_with_compaction() -> None:
    with answering(lambda asked: DONE) as server:
        instance(server.url).create_topic("orders", partitions=12, replication=3)
    (asked,) = server.asked
    found = parameters(asked)
    signature = found.pop("Signature")
    assert signature == signed_parameters(found, "my-secret", method="POST")["Signature"]
    assert asked.method == "POST"
    expected = {
        "Action": "CreateTopic",
        "Version": "2019-09-16",
        "InstanceId": "alikafka-1",
        "RegionId": "cn-hangzhou",
        "Topic": "orders",
        "PartitionNum": "12",
        "ReplicationFactor": "3",
        "LocalTopic": "true",
        "CompactTopic": "true",
        "AccessKeyId": "my-id",
    }
    assert expected.items() <= found.items()
    assert "my-secret" not in asked.body.decode()


def test_a_throttled_request_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsara.time, "sleep", lambda seconds: None)
    answers = [(400, b'{"Code":"Throttling.User","Message":"slow down"}')] * 2 + [DONE]
    with answering(lambda asked: answers.pop(0)) as server:
        instance(server.url).create_topic("orders", partitions=None, replication=None)
    nonces = {parameters(asked)["SignatureNonce"] for asked in server.asked}
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
        pytest.param((502, b"<html>"), "no JSON object, but '<html>'", id="no-json"),
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
    assert problems_of(declare(**APSARA), writes=True, severity="warning") == []
    assert "hunter2" not in repr(settings) + repr(settings.apsara)  # type: ignore[attr-defined]


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
