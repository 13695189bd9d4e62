"""Files of Java properties, as the JDK reads them."""

from __future__ import annotations

from upsert_platform.core.errors import Problem
from upsert_platform.declarations.located import read_properties


def test_java_properties() -> None:
    problems: list[Problem] = []
    text = r"""# comment
! comment
 a = 1
b: two words
c   3
long = first, \
       second
path = C:\\x\tz
uni\u0063ode = \u00e4
key\ with\ blank = v
empty=
a = again
"""
    found = read_properties(text, "f", problems)
    assert {name: item.text for name, item in found.items()} == {
        "a": "1",
        "b": "two words",
        "c": "3",
        "long": "first, second",
        "path": "C:\\x\tz",
        "unicode": "ä",
        "key with blank": "v",
        "empty": "",
    }
    assert [(name, item.location.line) for name, item in found.items()][3:5] == [("long", 6), ("path", 8)]
    assert [problem.message for problem in problems] == ["'a' is given twice; keep one"]
