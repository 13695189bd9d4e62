"""Every case of catalogues 6.1 to 6.7 has a test with its number, or a reason why it has none."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

CASES = range(1, 118)
ROOT = Path(__file__).parents[1]
FILES = [
    *(ROOT / "maxcompute").glob("test_*.py"),
    *(ROOT / "local" / "maxcompute").glob("test_*.py"),
    *(ROOT / "interop").glob("test_maxcompute*.py"),
]
REASONS = {
    54: "contradicts case 40: overwriting with dynamic partitions is what MaxStorage does, so it is allowed (case 82)",
    85: "a killed task is a killed worker process: nothing of it sleeps on; its attempt leaves nothing (case 114)",
    93: "a renamed column cannot be told from a dropped and an added one in a declaration; columns are matched by name",
    94: "sessions have one owner, the driver, so tasks report none to be released (cases 9, 111, 114)",
    95: "is the mapping of another connector; ours is the vendor's (section 1.7, test_types)",
    110: "a task's writer is made and used in one function, of one thread; the threads behind it get whole bodies",
}
_NAME = re.compile(r"def test_((?:\d{1,3}_|to_)+)")
_CASE = re.compile(r"id=\"(\d{1,3})-")


def numbers_of(name: str) -> list[int]:
    """Of ``1_2_`` and ``3_to_6_``; section numbers such as ``1_6_10_`` are none."""
    parts = name.strip("_").split("_")
    if parts[:2] in (["1", "2"], ["1", "6"], ["1", "7"], ["3", "9"]):
        return []
    found: list[int] = []
    for place, part in enumerate(parts):
        if part == "to":
            continue
        first = found[-1] + 1 if place and parts[place - 1] == "to" else int(part)
        found.extend(range(first, int(part) + 1))
    return found


def test_every_case_has_a_test_or_a_reason() -> None:
    tests: Counter[int] = Counter()
    for file in FILES:
        text = file.read_text("utf-8")
        for match in _NAME.finditer(text):
            tests.update(numbers_of(match[1]))
        tests.update(int(number) for number in _CASE.findall(text))
    assert [case for case in CASES if not tests[case] and case not in REASONS] == []
    assert [case for case in REASONS if tests[case]] == []
