"""Patterns of Java's regular expressions that RE2, which Arrow has, reads alike.

Both prefer the leftmost match, and in it what comes first. They differ in what they take for a dot, a class or the end
of a line, and in groups that are repeated: a pattern is written anew, character by character. One with
a character that is not known to mean the same is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

GROUP: Final = "g"
"""Name of the wanted group in what `re2_pattern` gives."""
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\x0b\f\r"}
_DOT: Final = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{([0-9]{1,3})(?:,([0-9]{1,3})?)?\})\??(?![+*?{])")
_MOST_REPEATS: Final = 200
"""Of all items together: RE2 writes each one out, and has a largest size."""
_DEEPEST: Final = 30
"""Groups in groups."""
_SPECIAL: Final = frozenset("\\[](){}*+?|^$.")


class _UnknownError(Exception):
    """A character that is not known to mean the same."""


@dataclass
class _Reading:
    """A pattern as far as it is read.

    Attributes:
        wanted: number of the group that is named; 0 for none.
        groups: how many began.
        always: whether the wanted group takes part in every match.
        repeats: how often items are repeated by numbers, all together.
        depth: groups that are open.
    """

    text: str
    wanted: int
    at: int = 0
    groups: int = 0
    always: bool = False
    repeats: int = 0
    depth: int = 0

    def alternatives(self, *, inside: bool) -> tuple[str, bool]:
        """Return the rest of the group or pattern, and whether the wanted group is in it."""
        found, holds = [], False
        while True:
            part, held = self._sequence()
            found.append(part)
            holds = holds or held
            if self._peek() != "|":
                break
            self.at += 1
        if inside != (self._peek() == ")"):
            raise _UnknownError
        if holds and len(found) > 1:
            self.always = False
        return "|".join(found), holds

    def _sequence(self) -> tuple[str, bool]:
        found, holds = [], False
        while self._peek() not in ("", "|", ")"):
            part, repeats, held = self._atom()
            quantifier = _QUANTIFIER.match(self.text, self.at)
            if quantifier is not None:
                if not repeats:
                    raise _UnknownError
                least, most = int(quantifier[1] or 0), int(quantifier[2] or quantifier[1] or 0)
                self.repeats += most
                if most < least or self.repeats > _MOST_REPEATS:
                    raise _UnknownError
                part, self.at = part + quantifier[0], quantifier.end()
            found.append(part)
            holds = holds or held
        return "".join(found), holds

    def _atom(self) -> tuple[str, bool, bool]:
        """One item, whether it may be repeated, and whether the wanted group is in it."""
        sign = self._peek()
        self.at += 1
        match sign:
            case "(":
                return self._group()
            case "[":
                return self._class(), True, False
            case "\\":
                return self._escaped(alone=True), True, False
            case "^":
                return "^", False, False
            case ".":
                return _DOT, True, False
        if sign in _SPECIAL:
            raise _UnknownError
        return _literal(sign), True, False

    def _group(self) -> tuple[str, bool, bool]:
        is_wanted = False
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif self._peek() == "?":
            raise _UnknownError
        else:
            self.groups += 1
            is_wanted = self.groups == self.wanted
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _UnknownError
        inner, holds = self.alternatives(inside=True)
        self.depth -= 1
        self.at += 1
        self.always = self.always or is_wanted
        return f"({f'?P<{GROUP}>' if is_wanted else '?:'}{inner})", False, holds or is_wanted

    def _class(self) -> str:
        negated = self._peek() == "^"
        self.at += negated
        members: list[str] = []
        while self._peek() != "]":
            member = self._member()
            if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                last = self._member()
                both = member + last
                if len(both) != 2 or not (both.isalnum() and both.isascii()) or member > last:
                    raise _UnknownError
                members.append(f"{member}-{last}")
            else:
                members.append(member if len(member) > 1 else _literal(member))
        if not members:
            raise _UnknownError
        self.at += 1
        return f"[{'^' * negated}{''.join(members)}]"

    def _member(self) -> str:
        """Return a character of a class, or the ranges that an escape stands for."""
        sign = self._peek()
        self.at += 1
        if sign == "\\":
            return self._escaped(alone=False)
        if sign in ("", "[", "^") or (sign == "&" and self._peek() == "&"):
            raise _UnknownError
        return sign

    def _escaped(self, *, alone: bool) -> str:
        sign = self._peek()
        self.at += 1
        if sign in _CLASSES:
            return f"[{_CLASSES[sign]}]" if alone else _CLASSES[sign]
        if not sign or sign.isalnum() or not sign.isascii():
            raise _UnknownError
        return _literal(sign) if alone else sign

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]


def _literal(sign: str) -> str:
    return sign if sign.isalnum() and sign.isascii() else f"\\x{{{ord(sign):x}}}"


def re2_pattern(pattern: str, group: int = 0) -> tuple[str, bool] | None:
    """A pattern for RE2; None where it is not sure to find what Java finds.

    Args:
        group: number of the one that is wanted, which is named `GROUP`; 0 for all that is found.

    Returns:
        With it, whether the group takes part in every match.
    """
    reading = _Reading(pattern, group)
    try:
        found, _ = reading.alternatives(inside=False)
    except _UnknownError:
        return None
    if group == 0:
        return f"(?P<{GROUP}>{found})", True
    return (found, reading.always) if reading.groups >= group else None
