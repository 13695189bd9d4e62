"""Every error that the source raises has one identifier: its message is recognised by one row of the catalogue.

Messages are read from the source, with `…` for what is inserted at run time. A message that is a variable is followed
to the assignments of its function, and, where it is an argument, to the calls of that function in its file.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform.core import error_catalogue as catalogue
from upsert_platform.core.errors import (
    DeclarationError,
    LeaseHeldError,
    Problem,
    SourceLocation,
    TopicError,
    UpsertPlatformError,
)

PACKAGE = Path(catalogue.__file__).parents[1]
ROWS = PACKAGE / "core" / "error_rows"
OTHERS = {"Problem", "ClickException", "Fault", "ToldFault"}
"""What becomes a message beside errors of the family."""
GENERAL = {
    "Problem", "UpsertPlatformError", "DestinationError", "EndpointError", "ChangelogError", "TopicError",
    "ReplicationError", "RecordError",
}  # fmt: skip
"""Classes of many rules."""


@cache
def modules() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def family() -> dict[str, str]:
    """Return every error class of the family to its base."""
    bases = {
        node.name: [name.id for name in node.bases if isinstance(name, ast.Name)]
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"UpsertPlatformError": ""}
    while more := {name: base for name, over in bases.items() for base in over if base in found and name not in found}:
        found |= more
    return found


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _chosen(part: ast.expr) -> ast.expr:
    """Return the first of two texts that a part of an f-string chooses from, else the part."""
    return part.value if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.IfExp) else part


def texts(node: ast.expr | None, function: ast.AST, tree: ast.Module, depth: int = 3) -> Iterator[str]:
    """Yield what an expression may say, with `…` for what is known at run time alone."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [next(texts(_chosen(part), function, tree, 0)) for part in node.values]
        inserted = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        if len(inserted) == 1 and depth and isinstance(inserted[0], ast.Name):
            for inner in texts(inserted[0], function, tree, depth - 1):
                yield "".join(inner if part == catalogue.ANY else part for part in parts)
        else:
            yield "".join(parts)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for left in texts(node.left, function, tree, depth):
            yield left + next(texts(node.right, function, tree, 0))
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body, function, tree, depth)
        yield from texts(node.orelse, function, tree, depth)
    elif isinstance(node, ast.Name) and depth:
        yield from _of_name(node.id, function, tree, depth - 1)
    else:
        yield catalogue.ANY


def _of_name(name: str, function: ast.AST, tree: ast.Module, depth: int) -> Iterator[str]:
    found = False
    for scope in (function, tree):
        for node in ast.walk(scope) if scope is function else tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, ast.Assign | ast.AnnAssign) and any(_name(item) == name for item in targets if item):
                found = True
                yield from texts(node.value, function, tree, depth)
        if found:
            return
    if isinstance(function, ast.FunctionDef):
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        if name in names:
            at = names.index(name) - (names[0] in ("self", "cls"))
            for call in _calls(tree).get(function.name, ()):
                given = {word.arg: word.value for word in call.keywords}.get(name)
                if given is None and at < len(call.args):
                    given = call.args[at]
                if given is not None:
                    found = True
                    yield from texts(given, _function_of(call, tree), tree, depth)
    if not found:
        yield catalogue.ANY


@cache
def _calls(tree: ast.Module) -> dict[str, list[ast.Call]]:
    found: dict[str, list[ast.Call]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.setdefault(_name(node.func), []).append(node)
    return found


@cache
def _functions(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    owner: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):  # inner functions come after those around them
        if isinstance(node, ast.FunctionDef):
            owner.update(dict.fromkeys(ast.walk(node), node))
    return owner


def _function_of(node: ast.AST, tree: ast.Module) -> ast.AST:
    return _functions(tree).get(node, tree)


@cache
def sites() -> tuple[tuple[str, str, str], ...]:
    """Return place, class and text of every error, problem and message of a command that the source makes."""
    found = []
    for path, tree in modules().items():
        for kind, calls in _calls(tree).items():
            if kind == "DeclarationError" or kind not in {*family(), *OTHERS}:
                continue  # a DeclarationError holds problems, each of which is a site
            if kind == "ServiceError" and path.startswith(("local/", "maxcompute/")):
                continue  # exceptions of another family
            for call in calls:
                first = call.args[0] if call.args else None
                for text in dict.fromkeys(texts(first, _function_of(call, tree), tree)):
                    found.append((f"upsert_platform/{path}:{call.lineno}", kind, text))
    return tuple(found)


def _has_own_row(kind: str) -> bool:
    """Whether a class is one rule, so that its messages need no words of their own."""
    return kind not in GENERAL and any(kind in row.default_of for row in catalogue.rows().values())


def test_every_message_of_the_source_has_an_identifier():
    lacking = [
        f"{place}: {kind}({text!r})"
        for place, kind, text in sites()
        if kind not in ("Fault", "ToldFault")
        if len(re.sub("[^A-Za-z]", "", text)) >= 12 and not _has_own_row(kind) and catalogue.row_of(text) is None
    ]
    assert not lacking, (
        "no row of upsert_platform/core/error_rows/*.yaml knows these messages. Add a few of their words to `says` of"
        " the row of their rule, or a row with the next number of its group, then run"
        " `python -m upsert_platform.reference.markdown`:\n" + "\n".join(lacking)
    )


def test_no_message_is_one_of_two_rules():
    for place, _, text in sites():
        strengths = {row.id: row.strength(text) for row in catalogue.rows().values()}
        best = [name for name, strength in strengths.items() if strength == max(strengths.values()) > 0]
        assert len(best) < 2, f"{place}: {text!r} has the words of {best}: name more of them in the right one's `says`"


def test_every_identifier_is_raised_somewhere():
    raised = {row.id for _, _, text in sites() if (row := catalogue.row_of(text)) is not None}
    classes = {*family(), *OTHERS}
    unused = [row.id for row in catalogue.rows().values() if row.id not in raised and not classes & set(row.default_of)]
    assert not unused, f"no message of the source has the words of {unused}"


def test_rows_are_whole():
    names = list(catalogue.rows())
    assert names == sorted(names), "identifiers stand in order"
    assert len(names) == sum(text.count("\n- id: ") for text in map(Path.read_text, ROWS.glob("*.yaml")))
    assert {name for row in catalogue.rows().values() for name in row.default_of} <= {*family(), *OTHERS}
    for row in catalogue.rows().values():
        assert re.fullmatch(r"UP-\d{4}", row.id)
        assert all(text.endswith(".") for text in (row.cause, row.remedy)), row.id
        of_example = catalogue.row_of(row.example)
        assert of_example is row or (of_example is None and row.default_of), f"{row.id}: the example is {of_example}"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (Problem("required option 'topic' is missing", SourceLocation("a.sql", 3)),
         "a.sql:3: error: required option 'topic' is missing [UP-1102]"),
        (TopicError("something new"), "something new [UP-1300]"),
        (UpsertPlatformError("topic 'a' is still there; run the command again:\nSHOW"),
         "topic 'a' is still there; run the command again: [UP-1318]\nSHOW"),
        (DeclarationError([Problem("is written from itself"), Problem("x")], hint="set A"),
         "error: is written from itself [UP-1009]\nerror: x [UP-1000]\nset A"),
        (LeaseHeldError("held [UP-2201]"), "held [UP-2201]"),
    ],
)  # fmt: skip
def test_identifier_ends_the_first_line(error: UpsertPlatformError | Problem, shown: str):
    assert catalogue.shown(error) == shown


def test_error_is_explained_by_number_or_words():
    for name in ("UP-1101", "1101", "up-1101", "[UP-1101]"):
        found = CliRunner().invoke(main, ["explain-error", name])
        assert found.exit_code == 0 and found.output.startswith("UP-1101: An option is unknown (Options)")
    listed = CliRunner().invoke(main, ["explain-error", "topic", "recreated"]).output
    assert "UP-1303" in listed and "UP-1101" not in listed
    assert len(CliRunner().invoke(main, ["explain-error"]).output.splitlines()) > len(catalogue.rows())
    assert CliRunner().invoke(main, ["explain-error", "UP-0001"]).exit_code == 1


def test_command_shows_the_identifier(tmp_path: Path):
    (tmp_path / "a.sql").write_text("CREATE TABLE a (id INT) WITH ('connector' = 'kafkaa')", "utf-8")
    found = CliRunner().invoke(main, ["validate", str(tmp_path)])
    assert "[UP-1012]" in found.output
    data = json.loads(CliRunner().invoke(main, ["validate", str(tmp_path), "--json"]).stdout)
    assert "UP-1012" in [problem["id"] for problem in data["problems"]]
