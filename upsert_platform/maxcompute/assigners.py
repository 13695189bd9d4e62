"""``sink.partition.assigner.class``: classes of the connector for Flink, their equals, and functions in Python.

Expressions need no assigner: a partition column is filled by the query of the INSERT, for example with
``DATE_FORMAT(created, 'yyyyMMdd')``.
"""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from upsert_platform.maxcompute.partition_spec import refuse_value

_PACKAGE = "org.apache.flink.odps.output.stream."
BY_COLUMNS = f"{_PACKAGE}TablePartitionAssigner"
BY_TIME = f"{_PACKAGE}DateTimePartitionAssigner"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_FIELDS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def check_assigner(name: str) -> str:
    """The name without spaces.

    Raises:
        ValueError: neither a function nor a class that has an equal here; the message says what takes its place.
    """
    name = name.strip()
    if name in (BY_COLUMNS, BY_TIME) or _FUNCTION.fullmatch(name):
        return name
    if ":" in name or not re.fullmatch(r"[\w.$]+", name):
        raise ValueError(f"takes 'package.module:function', not '{name}'")
    raise ValueError(
        f"names '{name}', not a class that has an equal here ({BY_COLUMNS}, {BY_TIME}). Fill the partition column"
        " in the query of the INSERT, or give a Python function as 'package.module:function'"
    )


def check_pattern(pattern: str) -> str:
    """The pattern as it is.

    Raises:
        ValueError: it has other fields than the known ones, or makes text that no partition can have.
    """
    format_time(pattern, datetime(2000, 1, 2, 3, 4, 5), "UTC")  # noqa: DTZ001 - shown in no zone
    return pattern


def format_time(pattern: str, at: datetime, zone: str) -> str:
    """A moment as partition text.

    Args:
        pattern: of Java's DateTimeFormatter, with the fields yyyy, yy, MM, dd, HH, mm and ss and quoted text.
        at: without a zone it is taken as it is.

    Raises:
        ValueError: another field, or text that no partition can have.
    """
    local = at.astimezone(ZoneInfo(zone)) if at.tzinfo else at
    parts = []
    end = 0
    for match in _TOKEN.finditer(pattern):
        quoted, token = match[1], match[0]
        end = match.end()
        if quoted is not None:
            parts.append(quoted.replace("''", "'") or "'")
        elif match[2] is None:
            parts.append(token)
        elif token in _FIELDS:
            parts.append(local.strftime(_FIELDS[token]).zfill(len(token)))
        else:
            raise ValueError(f"has the field '{token}'; known are {', '.join(_FIELDS)}")
    if end != len(pattern):
        raise ValueError("has a quote without its end")
    text = "".join(parts)
    reason = refuse_value(text)
    if reason:
        raise ValueError(f"makes a partition that {reason}")
    return text
