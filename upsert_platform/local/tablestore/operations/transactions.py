"""StartLocalTransaction, CommitTransaction, AbortTransaction."""

from __future__ import annotations

from upsert_platform.local.tablestore import keys, plainbuffer
from upsert_platform.local.tablestore.errors import invalid
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import parse, pb


def start(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.StartLocalTransactionRequest, body)
    table = instance.table(request.table_name)
    if table.main is not None:
        raise invalid("An index table has no local transactions.")
    key, _, _ = plainbuffer.decode_change(request.key)
    if table.generated is not None:
        raise invalid("A table with an auto-increment primary key has no local transactions.")
    partition = keys.encode_key(table.columns[:1], key)
    transaction = instance.transactions.start(table, partition, instance.clock.now())
    return bytes(pb.StartLocalTransactionResponse(transaction_id=transaction.id).SerializeToString())


def commit(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.CommitTransactionRequest, body)
    instance.transactions.commit(request.transaction_id, instance.clock.now())
    return bytes(pb.CommitTransactionResponse().SerializeToString())


def abort(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.AbortTransactionRequest, body)
    instance.transactions.end(instance.transactions.find(request.transaction_id, instance.clock.now()))
    return bytes(pb.AbortTransactionResponse().SerializeToString())
