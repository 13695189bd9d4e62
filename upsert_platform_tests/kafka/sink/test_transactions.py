"""What an error of a transaction means to whoever runs it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.sink.transactions import Fenced, in_transaction

BROKEN = KafkaError(KafkaError.INVALID_TXN_STATE, "not in a transaction", txn_requires_abort=True)
FENCED = KafkaError(KafkaError._FENCED, "This instance has been fenced by a newer instance")
AWAY = KafkaError(KafkaError._TRANSPORT, "connection refused")


class Client:
    """A client whose commit, and end of a transaction, fail."""

    def __init__(self, commit: KafkaError, abort: KafkaError | None) -> None:
        self._commit, self._abort = commit, abort

    def begin_transaction(self) -> None:
        pass

    def commit_transaction(self, seconds: float) -> None:
        raise KafkaException(self._commit)

    def abort_transaction(self, seconds: float) -> None:
        if self._abort is not None:
            raise KafkaException(self._abort)


@pytest.mark.parametrize(
    ("commit", "abort", "told"),
    [
        (FENCED, None, Fenced),
        (BROKEN, FENCED, Fenced),  # the newer producer ended it, which the commit met first
        (BROKEN, None, EndpointError),
        (BROKEN, AWAY, EndpointError),
        (AWAY, None, EndpointError),
    ],
)
def test_a_transaction_that_another_producer_took_away_is_told_as_fenced(
    commit: KafkaError, abort: KafkaError | None, told: type[Exception]
) -> None:
    def nothing() -> Any:
        return None

    with pytest.raises(told):
        in_transaction(cast("Producer", Client(commit, abort)), nothing)
