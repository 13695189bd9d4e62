"""The official SDK, without its noise."""

from __future__ import annotations

import logging

LOGGER = "upsert_platform.tablestore.sdk"
"""Name under which the SDK's client logs for the platform."""


def silence_sdk() -> None:
    """Call before the SDK is imported or opened.

    At import it warns that its compiled encoder is for another Python, which the platform's own encoder makes moot. At
    DEBUG it logs headers with the security token, and renders that text unless its logger's own level is higher; errors
    reach the caller as exceptions.
    """
    for name in ("tablestore.encoder", "tablestore.decoder"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger(LOGGER).setLevel(logging.CRITICAL)
