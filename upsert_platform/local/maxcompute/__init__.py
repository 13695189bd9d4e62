"""A local MaxCompute server that the official SDKs accept; see README.md for what it covers.

``python -m upsert_platform.local.maxcompute --data DIR --port N --project NAME --access-id ID`` serves REST, tunnel
and storage API on one port.
"""
