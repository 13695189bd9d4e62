"""Errors of the referee: data that cannot be read, or cannot be judged."""

from __future__ import annotations


class RefereeError(Exception):
    """Nothing can be judged: a format, an option or a server that the referee cannot use. The message says which."""


class UndecodableError(Exception):
    """The bytes are not a value of the declared form: such a record has no part in the table."""


class UnjudgedError(Exception):
    """The bytes may or may not be a value: what readers make of them is beyond the referee's decoders."""
