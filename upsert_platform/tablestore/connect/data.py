"""Kafka Connect's data: a value with its schema, and the JSON that JsonConverter makes it of.

Values are Python's: structs and maps are dicts, arrays lists, ``bytes`` bytes, a ``Decimal`` a decimal number. Date,
Time and Timestamp stay the integers that JSON has for them. Rules are those of ``JsonConverter.toConnectData``, but
stricter where that converter would make 0, false or a wrapped number of a value of another type.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from upsert_platform.tablestore.connect.values import UndecodableError

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
INTEGERS: Final = {"int8": 2**7, "int16": 2**15, "int32": 2**31, "int64": 2**63}
"""Integer types, and the first number beyond each."""
FLOATS: Final = ("float", "double")
_ALIASES: Final = {"float32": "float", "float64": "double"}
_PRIMITIVE: Final = (*INTEGERS, *FLOATS, "boolean", "string", "bytes")
_MOST_DIGITS: Final = 10_000
"""Digits of a Decimal before or behind its point: its text has them all."""


class WrittenFloat(float):
    """A JSON number with a fraction or an exponent, which remembers how it was written.

    Attributes:
        text: as in the message.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> WrittenFloat:
        """The number of a text."""
        made = super().__new__(cls, text)
        made.text = text
        return made


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema.

    Attributes:
        type: JsonConverter's name of the type: ``int32``, ``struct``, ...
        name: of a logical type, or of a struct.
        default: takes the place of null.
        fields: of a struct, in order.
        keys: of a map.
        items: of the values of a map, or of an array.
    """

    type: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    default: Any = None
    fields: Mapping[str, Schema] = field(default_factory=dict)
    keys: Schema | None = None
    items: Schema | None = None


TEXT: Final = Schema("string", optional=True)
"""What StringConverter gives."""


@dataclass(frozen=True, slots=True)
class Data:
    """A key or a value.

    Attributes:
        schema: None for JSON without one.
    """

    schema: Schema | None
    value: Any


NOTHING: Final = Data(None, None)


def read_schema(found: Any, where: str) -> Schema:
    """Reads the schema of an envelope.

    Raises:
        UndecodableError: JsonConverter would refuse it.
    """
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise UndecodableError(f"{where} has an envelope, and its schema names no type")
    kind = _ALIASES.get(found["type"], found["type"])
    fields: dict[str, Schema] = {}
    keys = items = None
    match kind:
        case "array":
            items = read_schema(found.get("items"), f"{where}, an array,")
        case "map":
            keys = read_schema(found.get("keys"), f"{where}, a map,")
            items = read_schema(found.get("values"), f"{where}, a map,")
        case "struct":
            fields = _fields(found.get("fields"), where)
        case _ if kind not in _PRIMITIVE:
            raise UndecodableError(f"{where} has the unknown Connect type {kind}")
    name, version, parameters = found.get("name"), found.get("version"), found.get("parameters")
    made = Schema(
        kind,
        optional=found.get("optional") is True,
        name=name if isinstance(name, str) else None,
        version=version if isinstance(version, int) else None,
        parameters=_parameters(parameters, where) if isinstance(parameters, dict) else {},
        fields=fields,
        keys=keys,
        items=items,
    )
    if "default" not in found:
        return made
    default = convert(made, found["default"], f"the default of {where}")
    return replace(made, default=default)


def _fields(found: Any, where: str) -> dict[str, Schema]:
    if not isinstance(found, list):
        raise UndecodableError(f"{where} is a struct, and its schema has no list of fields")
    fields: dict[str, Schema] = {}
    for item in found:
        name = item.get("field") if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise UndecodableError(f"{where} has a schema with a field that has no name")
        if name in fields:
            raise UndecodableError(f"{where} has a schema with two fields named '{name}'")
        fields[name] = read_schema(item, f"{where} field '{name}'")
    return fields


def _parameters(found: dict[str, Any], where: str) -> dict[str, str]:
    if not all(isinstance(value, str) for value in found.values()):
        raise UndecodableError(f"{where} has a schema whose parameters are not all texts")
    return found


def convert(schema: Schema, value: Any, where: str) -> Any:
    """A payload as a value of its schema: defaults in the place of nulls, bytes decoded, decimals made.

    Raises:
        UndecodableError: null where the schema requires a value, or a value of another type.
    """
    if value is None:
        if schema.default is not None or schema.optional:
            return schema.default
        raise UndecodableError(f"{where} is null or missing, and its schema requires a value")
    wrong = UndecodableError(f"{where} is not of Connect type {schema.type}")
    match schema.type:
        case "struct":
            if not isinstance(value, dict):
                raise wrong
            return {
                name: convert(item, value.get(name), f"{where} field '{name}'") for name, item in schema.fields.items()
            }
        case "array":
            if not isinstance(value, list) or schema.items is None:
                raise wrong
            return [convert(schema.items, item, f"{where}, an item,") for item in value]
        case "map":
            return _map(schema, value, where, wrong)
        case "string" | "boolean":
            if type(value) is not (str if schema.type == "string" else bool):
                raise wrong
            return value
        case "bytes":
            return _decimal(schema, value, wrong) if schema.name == DECIMAL else _bytes(value, wrong)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong
    if schema.type in FLOATS:
        try:
            return float(value)
        except OverflowError:
            return math.copysign(math.inf, value)
    beyond = INTEGERS[schema.type]
    if not isinstance(value, int) or not -beyond <= value < beyond:
        raise wrong
    return value


def _map(schema: Schema, value: Any, where: str, wrong: UndecodableError) -> Any:
    assert schema.keys is not None
    assert schema.items is not None
    if schema.keys.type == "string":
        if not isinstance(value, dict):
            raise wrong
        return {name: convert(schema.items, item, f"{where} field '{name}'") for name, item in value.items()}
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise wrong
    return [
        (convert(schema.keys, key, f"{where}, a key,"), convert(schema.items, item, f"{where}, an item,"))
        for key, item in value
    ]


def _bytes(value: Any, wrong: UndecodableError) -> bytes:
    if not isinstance(value, str):
        raise wrong
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise wrong from None


def _decimal(schema: Schema, value: Any, wrong: UndecodableError) -> Decimal:
    """Base64 of the unscaled number, or the number itself, as ``decimal.format`` = ``NUMERIC`` writes it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = Decimal(value.text if isinstance(value, WrittenFloat) else repr(value))
    else:
        scale = schema.parameters.get("scale", "")
        if not scale.isdecimal() or len(scale) > 4:
            raise wrong
        sign, digits, _ = Decimal(int.from_bytes(_bytes(value, wrong), "big", signed=True)).as_tuple()
        number = Decimal((sign, digits, -int(scale)))
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > _MOST_DIGITS:
        raise wrong
    return number
