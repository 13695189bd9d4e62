"""Files divided into records: line ends, quotes that hold them, comments; as Python's own reader divides CSV."""

from __future__ import annotations

import csv
import io
import random

import pytest

from upsert_platform.formats.file_records import split_file
from upsert_platform.formats.options import CsvSettings, JsonSettings


def _csv(**options: str) -> CsvSettings:
    return CsvSettings.model_validate({f"csv.{name.replace('_', '-')}": value for name, value in options.items()})


@pytest.mark.parametrize(
    ("content", "options", "records"),
    [
        ("", {}, {}),
        ("1,a\n2,b\n", {}, {1: "1,a", 2: "2,b"}),
        ("1,a\r\n2,b", {}, {1: "1,a", 2: "2,b"}),
        ("1,a\r2,b", {}, {1: "1,a", 2: "2,b"}),
        ("\ufeff1,a\n", {}, {1: "1,a"}),
        ("1,a\n\n2,b\n", {}, {1: "1,a", 2: "", 3: "2,b"}),
        ('1,"a\nb"\n2,c\n', {}, {1: '1,"a\nb"', 3: "2,c"}),
        ('"a\r\n""b\n",1\n\n2,"c"\n', {}, {1: '"a\r\n""b\n",1', 4: "", 5: '2,"c"'}),
        ('1,a"b\n2,"c"d\n3,e\n', {}, {1: '1,a"b', 2: '2,"c"d', 3: "3,e"}),
        ('1,a\n2,"b\n3,c\n', {}, {1: "1,a", 2: '2,"b\n3,c\n'}),
        ('1,"a\n2,"b\n', {"disable_quote_character": "true"}, {1: '1,"a', 2: '2,"b'}),
        ("1,'a\nb'\n2,\"c\n", {"quote_character": "'"}, {1: "1,'a\nb'", 3: '2,"c'}),
        ('1;"a\nb"\n2;c\n', {"field_delimiter": ";"}, {1: '1;"a\nb"', 3: "2;c"}),
        ('1§"a\nb"\n2§c\n', {"field_delimiter": "§"}, {1: '1§"a\nb"', 3: "2§c"}),
        ('1,"a\\"\nb"\n2,c\n', {"escape_character": "\\"}, {1: '1,"a\\"\nb"', 3: "2,c"}),
        ('#"x\n1,a\n \n # "y\n"b",c\n', {"allow_comments": "true"}, {2: "1,a", 5: '"b",c'}),
        ("#x\n1,a\n", {}, {1: "#x", 2: "1,a"}),
    ],
)
def test_csv(content: str, options: dict[str, str], records: dict[int, str]) -> None:
    found = split_file(content.encode(), _csv(**options))
    assert {line: record.decode() for line, record in found.items()} == records


def test_json_is_divided_by_its_lines() -> None:
    found = split_file(b'\xef\xbb\xbf{"a":1}\r\n\n\r\n{"a":\r2}\n', JsonSettings())
    assert {line: record.rstrip(b"\r") for line, record in found.items()} == {1: b'{"a":1}', 4: b'{"a":\r2}'}


@pytest.mark.parametrize("seed", range(4))
def test_records_of_another_writer_come_back(seed: int) -> None:
    rng = random.Random(seed)
    rows = [["".join(rng.choices('ab",\n\r ', k=rng.randrange(6))) for _ in range(3)] for _ in range(200)]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL if seed % 2 else csv.QUOTE_MINIMAL, lineterminator="\r\n").writerows(rows)
    found = split_file(text.getvalue().encode(), CsvSettings())
    assert [next(csv.reader(io.StringIO(record.decode(), newline=""))) for record in found.values()] == rows
    lines = [1]
    for row in rows[:-1]:
        ends = "".join(row).replace("\r\n", "\n")
        lines.append(lines[-1] + 1 + ends.count("\n") + ends.count("\r"))
    assert len(lines) == len(found)
