"""Message formats of Kafka topics: bytes to rows and rows to bytes, as Apache Flink's format classes do it.

decoder = build_decoder("json", [("id", parse_type("BIGINT"))], {"json.ignore-parse-errors": "true"})
decoded = decoder.decode([b'{"id": 1}', b"?"])   # decoded.rows, decoded.message, decoded.errors == {1: "..."}
"""

from upsert_platform.formats.base import Decoded, Decoder, Encoder
from upsert_platform.formats.factory import (
    FORMATS,
    Format,
    build_decoder,
    build_encoder,
    build_images_encoder,
    validate_format,
)

__all__ = [
    "FORMATS",
    "Decoded",
    "Decoder",
    "Encoder",
    "Format",
    "build_decoder",
    "build_encoder",
    "build_images_encoder",
    "validate_format",
]
