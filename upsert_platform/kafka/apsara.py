"""Topics of ApsaraMQ for Kafka, which are created through Alibaba Cloud's OpenAPI and not over the Kafka protocol.

Operation CreateTopic of product alikafka, version 2019-09-16, signed as an RPC-style request (HMAC-SHA1).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from pydantic import SecretStr

from upsert_platform.errors import EndpointError
from upsert_platform.kafka.endpoint import redact

REQUEST_SECONDS: Final = 15.0
APPEAR_SECONDS: Final = 60.0
"""How long a topic may take to appear on the brokers once it is created."""
_THROTTLED: Final = ("Throttling", "Throttling.User", "Throttling.Api", "ONS_SYSTEM_FLOW_CONTROL")
_ATTEMPTS: Final = 5
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{3,64}")


@dataclass(frozen=True, slots=True)
class ApsaraInstance:
    """An instance of ApsaraMQ for Kafka, and who may change it. Picklable; prints no secret.

    Attributes:
        endpoint: of the control plane, ``alikafka.<region>.aliyuncs.com``; https unless it begins with ``http://``.
    """

    instance_id: str
    region: str
    endpoint: str
    access_key_id: SecretStr
    access_key_secret: SecretStr

    def create_topic(self, name: str, *, partitions: int | None, replication: int | None) -> None:
        """Asks for a topic with log compaction, which needs the instance's local storage.

        Raises:
            EndpointError: not reachable, or refused; with the code that the service gave.
        """
        if not _NAME.fullmatch(name):
            raise EndpointError(
                f"ApsaraMQ for Kafka: topic '{name}' cannot be created: a name has 3 to 64 letters, digits, '-' and '_'"
            )
        parameters: dict[str, str] = {
            "Action": "CreateTopic",
            "InstanceId": self.instance_id,
            "RegionId": self.region,
            "Topic": name,
            "Remark": "upsert_platform",
            "LocalTopic": "true",
            "CompactTopic": "true",
        }
        if partitions is not None:
            parameters["PartitionNum"] = str(partitions)
        if replication is not None:
            parameters["ReplicationFactor"] = str(replication)
        for attempt in range(_ATTEMPTS):
            status, answer = self._post(parameters)
            code, message = str(answer.get("Code", status)), str(answer.get("Message", ""))
            if status == 200 and answer.get("Success") is True:
                return
            if code not in _THROTTLED or attempt == _ATTEMPTS - 1:
                break
            time.sleep(1.0 + attempt)  # one request per second and account
        shown = redact(f"{code}: {message}", self._secrets())
        raise EndpointError(
            f"ApsaraMQ for Kafka {self.instance_id}: topic '{name}' was not created: {shown} (request"
            f" {answer.get('RequestId', 'unknown')}); check 'aliyun.kafka.*', or create the topic in the console with"
            " local storage and log compaction"
        )

    def _post(self, parameters: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        import requests

        url = self.endpoint if "://" in self.endpoint else f"https://{self.endpoint}"
        signed = signed_parameters(
            {
                **parameters,
                "Format": "JSON",
                "Version": "2019-09-16",
                "AccessKeyId": self.access_key_id.get_secret_value(),
                "SignatureMethod": "HMAC-SHA1",
                "SignatureVersion": "1.0",
                "SignatureNonce": uuid.uuid4().hex,
                "Timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
            self.access_key_secret.get_secret_value(),
            method="POST",
        )
        try:
            response = requests.post(url, data=signed, timeout=REQUEST_SECONDS, allow_redirects=False)
        except requests.RequestException as error:
            reason = redact(str(error), self._secrets())
            raise EndpointError(
                f"ApsaraMQ for Kafka: {url} ('aliyun.kafka.endpoint') is not reachable: {reason}"
            ) from None
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            answer = {"Message": f"no JSON object, but {response.text[:200]!r}"}
        return response.status_code, answer

    def _secrets(self) -> tuple[str, ...]:
        return self.access_key_secret.get_secret_value(), self.access_key_id.get_secret_value()


def signed_parameters(parameters: Mapping[str, str], secret: str, *, method: str) -> dict[str, str]:
    """The parameters with their signature (Alibaba Cloud, RPC style, signature version 1.0)."""
    canonical = "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(parameters.items()))
    text = f"{method}&{_encoded('/')}&{_encoded(canonical)}"
    digest = hmac.new(f"{secret}&".encode(), text.encode(), hashlib.sha1).digest()
    return {**parameters, "Signature": base64.b64encode(digest).decode()}


def _encoded(text: str) -> str:
    return quote(text, safe="~")
