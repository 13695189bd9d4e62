"""Topics of ApsaraMQ for Kafka, which are created through Alibaba Cloud's OpenAPI and not over the Kafka protocol.

Operation CreateTopic of product alikafka, version 2019-09-16, through the official SDK.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from upsert_platform.core.errors import EndpointError, hide
from upsert_platform.kafka.modes import CleanupPolicy, StorageEngine

if TYPE_CHECKING:
    from alibabacloud_alikafka20190916.client import Client
    from alibabacloud_alikafka20190916.models import CreateTopicRequest

REQUEST_SECONDS: Final = 15.0
APPEAR_SECONDS: Final = 60.0
"""How long a topic may take to appear on the brokers once it is created."""
SECONDS_BETWEEN: Final = 1.0
"""CreateTopic is allowed once a second."""
NO_SDK: Final = (
    "ApsaraMQ for Kafka: topics are created with Alibaba Cloud's SDK, which is not installed; run `pip install"
    " 'upsert-platform[apsara]'`, or create the topic in the console and set 'auto.create' = 'false'"
)
_THROTTLED: Final = ("Throttling", "Throttling.User", "Throttling.Api", "ONS_SYSTEM_FLOW_CONTROL")
_ATTEMPTS: Final = 5
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{3,64}")
_LOGGER: Final = logging.getLogger(__name__)
_turn = threading.Lock()
_last_answer = [float("-inf")]


@dataclass(frozen=True, slots=True)
class TopicProperties:
    """The properties of a topic at its creation, besides partitions and replicas.

    Attributes:
        storage: cloud storage holds Normal Messages; local storage, of Professional Edition instances, holds
            Partitionally Ordered Messages and alone can be compacted.
        tags: pairs of key and value.
    """

    storage: StorageEngine = StorageEngine.CLOUD
    cleanup_policy: CleanupPolicy = CleanupPolicy.DELETE
    remark: str = "upsert_platform"
    tags: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ApsaraInstance:
    """An instance of ApsaraMQ for Kafka, and who may change it. Picklable; prints no secret.

    Attributes:
        endpoint: of the control plane, ``alikafka.<region>.aliyuncs.com``; https unless it begins with ``http://``.
        topics: what created topics are.
        otherwise: what they are where the instance does not offer that.
    """

    instance_id: str
    region: str
    endpoint: str
    access_key_id: SecretStr
    access_key_secret: SecretStr
    topics: TopicProperties = TopicProperties()
    otherwise: TopicProperties | None = None

    def for_control(self) -> ApsaraInstance:
        """The same, for a control topic: compacted, for which it needs local storage, where the instance offers that.

        Only Professional Edition instances do. On others it is in the storage that is declared, not compacted.
        """
        compacted = replace(self.topics, storage=StorageEngine.LOCAL, cleanup_policy=CleanupPolicy.COMPACT)
        plain = replace(self.topics, cleanup_policy=CleanupPolicy.DELETE)
        return replace(self, topics=compacted, otherwise=plain if plain.storage is StorageEngine.CLOUD else None)

    def create_topic(self, name: str, *, partitions: int | None, replication: int | None) -> None:
        """Asks for a topic, at most once a second.

        Raises:
            EndpointError: not reachable, or refused, with the code that the service gave; or the SDK is missing.
        """
        if not _NAME.fullmatch(name):
            raise EndpointError(
                f"ApsaraMQ for Kafka: topic '{name}' cannot be created: a name has 3 to 64 letters, digits, '-' and '_'"
            )
        request = self._request(name, partitions, replication)
        for attempt in range(_ATTEMPTS):
            answer = self._ask_in_turn(request)
            code = str(answer.get("Code"))
            if answer.get("Success") is True:
                return
            if code not in _THROTTLED or attempt == _ATTEMPTS - 1:
                break
            time.sleep(SECONDS_BETWEEN * (1 + attempt))
        shown = self._hide(f"{code}: {answer.get('Message', '')}")
        if self.otherwise is not None and code not in _THROTTLED:
            _LOGGER.warning(
                "ApsaraMQ for Kafka %s: topic '%s' was not created compacted (%s), so it is created in cloud storage:"
                " the position of the table is forgotten when the instance's retention deletes it, and every batch is"
                " written again then. A Professional Edition instance compacts it",
                self.instance_id, name, shown,
            )  # fmt: skip
            replace(self, topics=self.otherwise, otherwise=None).create_topic(
                name, partitions=partitions, replication=replication
            )
            return
        raise EndpointError(
            f"ApsaraMQ for Kafka {self.instance_id}: topic '{name}' was not created: {shown} (request"
            f" {answer.get('RequestId', 'unknown')}); check 'aliyun.kafka.*', or create the topic in the console"
        )

    def _request(self, name: str, partitions: int | None, replication: int | None) -> CreateTopicRequest:
        try:
            from alibabacloud_alikafka20190916.models import CreateTopicRequest, CreateTopicRequestTag
        except ImportError:
            raise EndpointError(NO_SDK) from None

        topics = self.topics
        return CreateTopicRequest(
            instance_id=self.instance_id,
            region_id=self.region,
            topic=name,
            remark=topics.remark,
            local_topic=topics.storage is StorageEngine.LOCAL,
            compact_topic=topics.cleanup_policy is CleanupPolicy.COMPACT,
            partition_num=None if partitions is None else str(partitions),
            replication_factor=replication,
            tag=[CreateTopicRequestTag(key=key, value=value) for key, value in topics.tags] or None,
        )

    def _client(self) -> Client:
        from alibabacloud_alikafka20190916.client import Client
        from alibabacloud_tea_openapi.models import Config

        protocol, _, host = self.endpoint.rpartition("://")
        return Client(
            Config(
                access_key_id=self.access_key_id.get_secret_value(),
                access_key_secret=self.access_key_secret.get_secret_value(),
                endpoint=host,
                protocol=protocol or "https",
                region_id=self.region,
                user_agent="upsert_platform",
            )
        )

    def _ask(self, request: CreateTopicRequest) -> Mapping[str, Any]:
        """The answer, whether it is a success or not."""
        from darabonba.runtime import RuntimeOptions
        from Tea.exceptions import TeaException, UnretryableException

        millis = int(REQUEST_SECONDS * 1000)
        runtime = RuntimeOptions(connect_timeout=millis, read_timeout=millis, autoretry=False)
        try:
            answer: Mapping[str, Any] = self._client().create_topic_with_options(request, runtime).body.to_map()
        except UnretryableException as error:
            reason = self._hide(str(error.message))
            raise EndpointError(
                f"ApsaraMQ for Kafka: {self.endpoint} ('aliyun.kafka.endpoint') cannot be reached, or does not answer"
                f" as the OpenAPI does: {reason}"
            ) from None
        except TeaException as error:
            data = error.data or {}
            return {"Code": error.code, "Message": data.get("Message", ""), "RequestId": data.get("RequestId")}
        return answer

    def _ask_in_turn(self, request: CreateTopicRequest) -> Mapping[str, Any]:
        """Asks when a second has passed since this process was last answered."""
        with _turn:
            time.sleep(max(0.0, _last_answer[0] + SECONDS_BETWEEN - time.monotonic()))
            try:
                return self._ask(request)
            finally:
                _last_answer[0] = time.monotonic()

    def _hide(self, text: str) -> str:
        return hide(text, [self.access_key_secret.get_secret_value()], ids=[self.access_key_id.get_secret_value()])
