"""Format ``proto-registry``: a Protobuf message behind the frame of a registry, which has its proto file.

Behind the schema's id stands which message of the file it is: the number of places and the places themselves, as zigzag
varints, or a single zero byte for the first message.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.errors import DeclarationError, EndpointError, Problem
from upsert_platform.formats.base import Columns
from upsert_platform.formats.protobuf.codec import ProtobufDecoder, ProtobufEncoder
from upsert_platform.formats.protobuf.schema import misfits
from upsert_platform.formats.registered.format_options import ProtoRegistrySettings
from upsert_platform.formats.registered.framing import HEADER, FramedDecoder, frame
from upsert_platform.formats.registered.proto_schema import ProtoFile, derive_proto
from upsert_platform.formats.registered.registry import RegisteredSchema, SchemaRegistry
from upsert_platform.formats.registered.subjects import Destination, subject_of, written_schema

_LONGEST: Final = 10
"""Bytes of a varint."""
_DEEPEST: Final = 100
"""Messages within messages."""


class ProtoRegistryDecoder(FramedDecoder):
    """Decodes messages by the proto file of their writer; a column that it has no field for is null."""

    def __init__(self, columns: Columns, settings: ProtoRegistrySettings, registry: SchemaRegistry) -> None:
        self._columns = list(columns)
        self._settings = settings
        self._registry = registry
        super().__init__(columns, self._of_message, data_at=data_at)

    def _of_message(self, schema_id: int, head: bytes) -> ProtobufDecoder:
        message = ProtoFile(self._registry.schema(schema_id, kind="PROTOBUF")).at(path_of_message(head))
        wrong = list(misfits(message.DESCRIPTOR, self._columns, may_lack=True))
        if wrong:
            raise ValueError("; ".join(wrong))
        return ProtobufDecoder(self._columns, message, read_default_values=self._settings.read_default_values)


class ProtoRegistryEncoder:
    """Encodes rows with the proto file of the subject, which is registered when the first row is written."""

    def __init__(
        self, columns: Columns, settings: ProtoRegistrySettings, registry: SchemaRegistry, *, written: Destination
    ) -> None:
        self._columns = list(columns)
        self._settings = settings
        self._registry = registry
        self._text = settings.declared_schema or derive_proto(columns)
        problem = schema_problem(self._text, settings.message_name, columns)
        if problem is not None and not settings.use_latest:
            raise DeclarationError([Problem(f"option 'proto-registry.schema': {problem}")])
        name = settings.message_name
        if name is None and problem is None:
            name = ProtoFile(RegisteredSchema(self._text)).at((0,)).DESCRIPTOR.full_name
        self._subject = subject_of(settings, written, record=name or "")
        self._header = b""
        self._encoder: ProtobufEncoder | None = None

    def encode(self, rows: pa.RecordBatch) -> tuple[pa.Array, dict[int, str]]:
        """Encodes a block; see `upsert_platform.formats.base.Encoder`.

        Raises:
            EndpointError: the registry did not answer, or refused the schema; or its schema is not one of the columns.
        """
        if rows.num_rows == 0:
            return pa.array([], pa.binary()), {}
        encoder = self._encoder or self._open()
        data, errors = encoder.encode(rows)
        return pc.binary_join_element_wise(pa.scalar(self._header), data, b""), errors

    def _open(self) -> ProtobufEncoder:
        schema_id, schema = written_schema(self._registry, self._settings, self._subject, self._text, kind="PROTOBUF")
        try:
            file = ProtoFile(schema)
            path = file.path_of(self._settings.message_name)
            message = file.at(path)
            wrong = list(misfits(message.DESCRIPTOR, self._columns))
        except ValueError as error:
            wrong = [str(error)]
        if wrong:
            raise EndpointError(
                f"the newest schema of subject '{self._subject}' is not one of the declared columns: {'; '.join(wrong)}"
            )
        self._header = frame(schema_id) + _head(path)
        self._encoder = ProtobufEncoder(self._columns, message, null_text=self._settings.null_string_literal)
        return self._encoder


def schema_problem(text: str, name: str | None, columns: Columns) -> str | None:
    """Return why a proto file cannot encode the columns, or None if it can. It imports nothing but Google's own."""
    try:
        file = ProtoFile(RegisteredSchema(text))
        wrong = list(misfits(file.at(file.path_of(name)).DESCRIPTOR, columns))
    except ValueError as error:
        wrong = [str(error)]
    return "; ".join(wrong) or None


def data_at(message: bytes) -> int:
    """Return the offset at which the data of a message begins.

    Raises:
        ValueError: what says which message it is, is broken.
    """
    count, at = _varint(message, HEADER)
    if not 0 <= count <= _DEEPEST:
        raise ValueError("the place of the message in its proto file is broken")
    for _ in range(count):
        _, at = _varint(message, at)
    return at


def path_of_message(head: bytes) -> tuple[int, ...]:
    count, at = _varint(head, 0)
    path = []
    for _ in range(count):
        place, at = _varint(head, at)
        path.append(place)
    return tuple(path) or (0,)


def _head(path: tuple[int, ...]) -> bytes:
    return b"\0" if path == (0,) else b"".join(map(_zigzag, (len(path), *path)))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag form, and where it ends."""
    number = 0
    for place, byte in enumerate(data[at : at + _LONGEST]):
        number |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise ValueError("the message ends before it says which message of its proto file it is")


def _zigzag(number: int) -> bytes:
    rest, made = number << 1, bytearray()
    while rest > 0x7F:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    made.append(rest)
    return bytes(made)
