"""Character sets of servers: Python's codec for each, the codes of which it makes other characters, and collations.

A server's answers are the measure: a snapshot has the texts as the server converts them, and a key that the log tells
has to be the same one.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

UTF8: Final = frozenset(("utf8mb4", "utf8mb3", "utf8", "ascii"))
CODECS: Final = {
    "latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "cp1250": "cp1250",
    "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866",
    "greek": "iso8859_7", "hebrew": "iso8859_8", "koi8r": "koi8_r", "koi8u": "koi8_u", "macroman": "mac_roman",
    "macce": "mac_latin2", "tis620": "tis_620", "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030", "big5": "big5",
    "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "cp949", "ucs2": "utf_16_be",
    "utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be",
}  # fmt: skip
"""Character sets of MySQL to Python's names for them."""
_USER_DEFINED: Final = {
    f"{plane}{row:x}a1": "".join(map(chr, range(first + 94 * number, first + 94 * number + 94)))
    for plane, first in (("", 0xE000), ("8f", 0xE3AC))
    for number, row in enumerate(range(0xF5, 0xFF))
}
"""Rows of EUC for characters of one's own, which Python does not have."""
_OTHER: Final = {
    # The server's latin1 is Windows' 1252, with the five bytes that Windows leaves out as control characters.
    "latin1": {"81": "\x81", "8d": "\x8d", "8f": "\x8f", "90": "\x90", "9d": "\x9d"},
    "cp1256": {"8a": "?", "8f": "?", "98": "?", "9a": "?", "9f": "?", "aa": "?", "c0": "?", "ff": "?"},
    "cp866": {"fc": "ⁿ²"},
    "greek": {"a1": "ʽʼ", "a4": "??", "aa": "?"},
    "hebrew": {"af": "‾"},
    "koi8u": {"95": "•"},
    "tis620": {"a0": "\ufffd", "db": "\ufffd" * 4, "fc": "\ufffd" * 4},
    "big5": {
        "a15a": "\ufffd", "a1c3": "\ufffd", "a1c5": "\ufffd", "a1fe": "\ufffd", "a240": "\ufffd", "a2cc": "\ufffd",
        "a2ce": "\ufffd", "f9d6": "碁銹裏墻恒粧嫺",
    },
    "gb18030": {"a8bc": "ḿ", "8135f437": "\ue7c7"},
    "sjis": {"815f": "\\"},
    "ujis": {"a1c0": "\\", **_USER_DEFINED},
    "eucjpms": {
        "a1c1": "～∥", "a1dd": "－", "a1f1": "￠￡", "a2cc": "￢",
        "ada1": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ", "adc0": "㍉㌔㌢㍍㌘㌧㌃㌶㍑㍗㌍㌦㌣㌫㍊㌻㎜㎝㎞㎎㎏㏄㎡",
        "addf": "㍻〝〟№㏍℡㊤㊥㊦㊧㊨㈱㈲㈹㍾㍽㍼≒≡∫∮∑√⊥∠∟⊿∵∩∪", "8fa2b7": "～", "8fa2c3": "￤",
        "8ff3f3": "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡ",
        "8ff4a1": "ⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏塚增寬峵嵓﨑德悅愠敎昻晥晴朗栁﨓﨔橫櫢淸淲瀨凞猪"
        "甁皂皞益礰礼神祥福竧靖精綠緖羽荢﨟薰蘒﨡蠇諸譿賴赶﨣﨤逸郞都鄕﨧﨨閒隆﨩霻靍靑飯飼館馞髙魲鶴黑",
        **_USER_DEFINED,
    },
}  # fmt: skip
"""Codes, in hexadecimal, of which servers make other characters than Python: the first of a run, and its characters."""
_ONE_BYTE: Final = re.compile(rb".", re.DOTALL)
_CHARACTERS: Final = {
    "big5": re.compile(rb"[\x81-\xfe].|.", re.DOTALL),
    "gb18030": re.compile(rb"[\x81-\xfe][0-9]..|[\x81-\xfe].|.", re.DOTALL),
    "sjis": re.compile(rb"[\x81-\x9f\xe0-\xfc].|.", re.DOTALL),
    **dict.fromkeys(("ujis", "eucjpms"), re.compile(rb"\x8f..|[\x8e\xa1-\xfe].|.", re.DOTALL)),
}
"""One character of those of more than a byte that are in `_OTHER`."""
_COLLATIONS: Final = {
    "big5": (1, 84), "latin2": (2, 9, 21, 27, 77), "dec8": (3, 69), "cp850": (4, 80),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94), "hp8": (6, 72), "koi8r": (7, 74), "swe7": (10, 82), "ujis": (12, 91),
    "sjis": (13, 88), "cp1251": (14, 23, 50, 51, 52), "hebrew": (16, 71), "tis620": (18, 89), "euckr": (19, 85),
    "latin7": (20, 41, 42, 79), "koi8u": (22, 75), "gb2312": (24, 86), "greek": (25, 70),
    "cp1250": (26, 34, 44, 66, 99), "gbk": (28, 87), "cp1257": (29, 58, 59), "latin5": (30, 78), "armscii8": (32, 64),
    "cp866": (36, 68), "keybcs2": (37, 73), "macce": (38, 43), "macroman": (39, 53), "cp852": (40, 81),
    "cp1256": (57, 67), "geostd8": (92, 93), "cp932": (95, 96), "eucjpms": (97, 98), "gb18030": (248, 249, 250),
}  # fmt: skip
"""Numbers of the collations of character sets that are not UTF-8 and that clients may have."""
_BY_NUMBER: Final = {number: charset for charset, numbers in _COLLATIONS.items() for number in numbers}
_NO_PAD: Final = 1024
"""MariaDB gives a collation that does not count blanks at the end this much more than the other of its name."""


def charset_of(collation: int) -> str:
    """Return the character set of a client by the number of its collation; UTF-8 where it is none of the others."""
    own = collation - _NO_PAD if _NO_PAD < collation < 2 * _NO_PAD else collation
    return _BY_NUMBER.get(own, "utf8mb4")


@cache
def _other(charset: str) -> tuple[dict[bytes, str], re.Pattern[bytes]] | None:
    """The characters by their codes, and a pattern that is in every text which has one of them."""
    found: dict[bytes, str] = {}
    parts = []
    for first, characters in _OTHER.get(charset, {}).items():
        head, last = bytes.fromhex(first)[:-1], bytes.fromhex(first)[-1]
        found.update({head + bytes([last + at]): character for at, character in enumerate(characters)})
        parts.append(
            re.escape(head) + b"[" + b"".join(b"\\x%02x" % (last + at) for at in range(len(characters))) + b"]"
        )
    return (found, re.compile(b"|".join(parts), re.DOTALL)) if found else None


def decoded(value: bytes, charset: str, *, errors: str = "strict") -> str:
    """Return a text as a server converts it to UTF-8.

    Args:
        charset: a known one.
        errors: as `bytes.decode` has them.

    Raises:
        UnicodeDecodeError: bytes that the character set does not have.
    """
    codec = "utf-8" if charset in UTF8 else CODECS[charset]
    other = _other(charset)
    if other is None or other[1].search(value) is None:
        return value.decode(codec, errors)
    characters, pattern = other[0], _CHARACTERS.get(charset, _ONE_BYTE)
    return "".join(characters.get(code) or code.decode(codec, errors) for code in pattern.findall(value))
