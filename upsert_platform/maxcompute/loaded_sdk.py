"""Every part of PyODPS that steps and tasks use, imported at once: for who imports it ahead, or once for many."""

# ruff: noqa: F401, E402 - PyODPS comes in by `load_sdk`, before its parts

from upsert_platform.maxcompute.sdk import load_sdk

load_sdk()

import odps.maxstorage.io.arrow_reader
import odps.maxstorage.models.requests
import odps.maxstorage.read.table_session
import odps.maxstorage.stub
import odps.tunnel

import upsert_platform.maxcompute.destination
