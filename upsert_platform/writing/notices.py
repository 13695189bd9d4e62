"""Warnings that a process logs once: an option has no effect on what it writes or reads."""

from __future__ import annotations

import logging

_SAID: set[str] = set()


def warn_once(logger: logging.Logger, message: str) -> None:
    """Logs a warning the first time that this process has it."""
    if message not in _SAID:
        _SAID.add(message)
        logger.warning("%s", message)
