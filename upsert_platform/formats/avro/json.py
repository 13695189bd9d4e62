"""Avro's JSON encoding: one datum as JSON text, where a union's value stands under the name of its branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from upsert_platform.core.types import TEXTS, TypeName
from upsert_platform.formats.avro.plan import Node, target_names
from upsert_platform.formats.avro.reader import AvroDataError, decimal_of, time_of_day
from upsert_platform.formats.java.text import parse_float, repair_surrogates
from upsert_platform.formats.json.tree import FloatText, IntText, Tree, parse_tree
from upsert_platform.formats.json.values import FieldError, describe, to_micros

Convert = Callable[[Tree], Any]
_SPECIAL = ("NaN", "Infinity", "-Infinity")
_STAMPS = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)


def json_row_reader(node: Node) -> Callable[[bytes], list[Any]]:
    """A function from a message in JSON encoding to its row; text after the datum is ignored."""
    convert = _record_values(node)
    return lambda message: convert(parse_tree(message, strict=True))


def _converter(node: Node) -> Convert:
    match node.kind:
        case "null":
            return _null
        case "boolean":
            return _boolean
        case "int" | "long":
            return _integer(node)
        case "float":
            return _floating(parse_float)
        case "double":
            return _floating(float)
        case "bytes" | "string" | "fixed" | "enum":
            return _content(node)
        case "union":
            return _union(node)
        case "array":
            return _array(_converter(node.children[0]))
        case "map":
            return _map(_converter(node.children[0]))
    values = _record_values(node)
    names = target_names(node)
    return lambda tree: dict(zip(names, values(tree), strict=True))


def _expect(tree: Tree, kind: type, what: str) -> None:
    if type(tree) is not kind:
        raise AvroDataError(f"{what} expected, not {describe(tree)}")


def _null(tree: Tree) -> None:
    if tree is not None:
        raise AvroDataError(f"null expected, not {describe(tree)}")


def _boolean(tree: Tree) -> bool:
    _expect(tree, bool, "a boolean")
    return bool(tree)


def _integer(node: Node) -> Convert:
    bits = 32 if node.kind == "int" else 64
    name = node.target.name if node.target is not None else None

    def convert(tree: Tree) -> int:
        _expect(tree, IntText, "a whole number")
        value = int(tree)
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise AvroDataError(f"a number out of the range of {bits} bits")
        if name is TypeName.TINYINT or name is TypeName.SMALLINT:
            half = 128 if name is TypeName.TINYINT else 32_768
            return (value + half) % (2 * half) - half
        if name in _STAMPS:
            return to_micros(value * node.unit)
        return time_of_day(value * node.unit // 1000) if name is TypeName.TIME else value

    return convert


def _floating(parse: Callable[[str], float]) -> Convert:
    def convert(tree: Tree) -> float:
        if type(tree) not in (IntText, FloatText) and tree not in _SPECIAL:
            raise AvroDataError(f"a number expected, not {describe(tree)}")
        return parse(tree)

    return convert


def _content(node: Node) -> Convert:
    target = node.target

    def convert(tree: Tree) -> Any:
        _expect(tree, str, "text")
        if node.kind == "enum" and tree not in node.symbols:
            raise AvroDataError("an unknown enum symbol")
        if target is not None and target.name in TEXTS:
            return repair_surrogates(tree)
        content = tree.encode() if node.kind == "string" else tree.encode("latin-1", "replace")
        if target is not None and target.name is TypeName.DECIMAL:
            return decimal_of(content, node.scale, target)
        return content

    return convert


def _branch_name(node: Node) -> str:
    return node.name or node.kind


def _union(node: Node) -> Convert:
    branches = {_branch_name(child): _converter(child) for child in node.children}

    def convert(tree: Tree) -> Any:
        if tree is None:
            if "null" not in branches:
                raise AvroDataError("null where the schema has none")
            return None
        if type(tree) is not tuple or len(tree) != 1 or tree[0][0] not in branches:
            raise AvroDataError("an object with the name of a union's branch expected")
        return branches[tree[0][0]](tree[0][1])

    return convert


def _array(item: Convert) -> Convert:
    def convert(tree: Tree) -> list[Any]:
        _expect(tree, list, "an array")
        return [item(one) for one in tree]

    return convert


def _map(value: Convert) -> Convert:
    def convert(tree: Tree) -> list[tuple[str, Any]]:
        _expect(tree, tuple, "an object")
        return list({repair_surrogates(name): value(one) for name, one in tree}.items())

    return convert


def _record_values(node: Node) -> Callable[[Tree], list[Any]]:
    names = target_names(node)
    steps = [
        (names[place], _converter(child), place)
        for child, place in zip(node.children, node.places, strict=True)
        if place is not None
    ]

    def convert(tree: Tree) -> list[Any]:
        _expect(tree, tuple, "an object")
        members = dict(tree)
        row: list[Any] = [None] * len(names)
        for name, one, place in steps:
            if name not in members:
                raise FieldError(f"missing field {name}")
            try:
                row[place] = one(members[name])
            except ValueError as error:
                raise FieldError(f"field {name}: {error}") from None
        return row

    return convert
