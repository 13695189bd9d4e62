"""Every part of the SDK that steps and tasks use, imported at once: for who imports it ahead, or once for many."""

# ruff: noqa: F401, E402 - the SDK is silenced before it is imported

from upsert_platform.tablestore.sdk import silence_sdk

silence_sdk()

import tablestore
import tablestore.auth
import tablestore.protobuf.table_store_pb2
import urllib3

import upsert_platform.tablestore.client
