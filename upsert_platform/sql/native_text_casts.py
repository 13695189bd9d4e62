"""Texts as other values: CAST to numbers and truth values, what `casts` writes for dates, timestamps and short
decimals, and TO_TIMESTAMP and TO_DATE by a pattern.

What `casts` writes in many words is known again as a whole: it is compared, part by part, with what it writes for
a text that stands for any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.casts import cast
from upsert_platform.sql.native_types import Cast, Form, Reading, declared_type, parsed, text_literal
from upsert_platform.sql.rendered import DATE, STRING, STRINGS, TIMESTAMPS, Rendered

_ANY: Final = "_text"
"""The name of what stands for any text."""
_PRECISIONS: Final = range(7)
_LTZ: Final = LogicalType(TypeName.TIMESTAMP_LTZ, precision=6)
_PART: Final = re.compile("(yyyy|MM|dd|HH|mm|ss|S{1,9})|[-/:. ,_]|'T'")
_DAY: Final = {"yyyy", "MM", "dd"}
_TIMES: Final[tuple[list[str], ...]] = ([], ["HH"], ["HH", "mm"], ["HH", "mm", "ss"], ["HH", "mm", "ss", "S"])


def of_case(node: exp.Case, reading: Reading) -> Native | None:
    """The form of what `casts` writes as a CASE for a text; None for any other CASE."""
    branches = node.args["ifs"]
    if node.this is not None or len(branches) != 1:
        return None
    other = node.args.get("default")
    if isinstance(other, exp.TryCast):
        to = declared_type(other.to)
        text = _text_in(node, to, reading) if to is not None and to.name is TypeName.DECIMAL else None
        return None if text is None else ("text to short decimal", text, to)
    if other is not None or not isinstance(branches[0].this, exp.RegexpLike):
        return None
    text = _text_in(node, DATE, reading)
    if text is not None:
        return ("text to day", text)
    for to in (LogicalType(name, precision=digits) for name in TIMESTAMPS for digits in _PRECISIONS):
        text = _text_in(node, to, reading)
        if text is not None:
            return ("text to moment", text, to)
    return None


def _text_in(node: exp.Expr, to: LogicalType, reading: Reading) -> Native | None:
    """The text of which `casts` writes an expression; None where it does not."""
    texts: list[exp.Expr] = []
    return reading.text(texts[0]) if _alike(_written(to), node, texts) else None


@cache
def _written(to: LogicalType) -> exp.Expr:
    """Return what `casts` writes for a text."""
    return parsed(cast(Rendered(_ANY, STRING, simple=True), to, safe=True).sql)


def _alike(written: Any, given: Any, texts: list[exp.Expr]) -> bool:
    """Return whether parts of two expressions are the same, where one stands for any text.

    Args:
        texts: what stands in its places.
    """
    if isinstance(written, exp.Column) and written.name == _ANY:
        texts.append(given)
        return bool(given == texts[0])
    if isinstance(written, list) and isinstance(given, list):
        pairs = zip(written, given, strict=True) if len(written) == len(given) else [(True, False)]
        return all(_alike(one, other, texts) for one, other in pairs)
    if not isinstance(written, exp.Expr) or not isinstance(given, exp.Expr):
        return bool(written == given) or not (written or given)
    names = dict.fromkeys((*written.args, *given.args))
    return type(written) is type(given) and all(
        _alike(written.args.get(name), given.args.get(name), texts) for name in names
    )


def _to_truth(node: exp.Expr, _to: LogicalType, reading: Reading) -> Native | None:
    found = reading.typed(node)
    if found is None or found[1].name not in (*STRINGS, TypeName.BOOLEAN):
        return None
    return found[0] if found[1].name is TypeName.BOOLEAN else ("text to truth", found[0])


def _by_pattern(node: exp.Expr, reading: Reading) -> Native | None:
    """TRY_TO_TIMESTAMP by a pattern of a whole day, of two digits and years, and perhaps a time of day."""
    if len(node.expressions) != 2:
        return None
    text, pattern = reading.text(node.expressions[0]), text_literal(node.expressions[1])
    if text is None or pattern is None or not _is_known(pattern):
        return None
    return ("text to moment by", text, pattern, _LTZ)


def _is_known(pattern: str) -> bool:
    found = list(_PART.finditer(pattern))
    if "".join(part[0] for part in found) != pattern:
        return False
    fields = [part[1][0] if part[1][0] == "S" else part[1] for part in found if part[1]]
    times = sorted((name for name in fields if name not in _DAY), key="HH mm ss S".find)
    known = {*fields} >= _DAY and len({*fields}) == len(fields) and times in _TIMES
    return known and ("S" not in fields or re.search(r"[^a-zA-Z]S+$", pattern) is not None)


CASTS: Final[Mapping[TypeName, Cast]] = {TypeName.BOOLEAN: _to_truth}
FUNCTIONS: Final[Mapping[str, Form]] = {"TRY_TO_TIMESTAMP": _by_pattern}
