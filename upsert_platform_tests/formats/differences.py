"""Vectors in which the platform differs from Flink on purpose, by behaviour.

Each test that runs vectors compares the whole set, so a vector that begins or ceases to differ fails it.

Not listed, because it is one rule for all formats: where Flink hands on null in the place of a row, or drops a message
without a word, the message goes to quarantine (`support.expected`).
"""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """A behaviour that differs.

    Attributes:
        reason: what Flink does, what the platform does, and why.
        vectors: numbers of the vectors, without the name of the file.
    """

    reason: str
    vectors: tuple[int, ...]


JSON_DECODE = {
    "object or array where BOOLEAN is declared": Difference(
        "Flink's streaming parser reads the bracket as text that is not 'true' and loses its place in the message; "
        "here the field cannot be read (null if errors are ignored)",
        (6, 479, 480, 482, 483, 485, 486, 489, 492, 494, 495, 497, 498, 1198, 1590, 3299, 3320),
    ),
    "wrong container while errors are ignored": Difference(
        "Flink's streaming parser goes on inside the container and takes its content for fields of the row; here "
        "only the field is null",
        (540, 600, 606, 609, 612, 615, 618, 621, 639, 642, 645, 690, 693, 696, 741, 744, 747, 792, 1616,
         2563, 3020, 3531),
    ),
    "broken JSON while errors are ignored": Difference(
        "Flink nulls the field in which the text breaks and goes on from there; here a message that is not JSON "
        "goes to quarantine whole",
        (832, 833, 1737, 2389, 2576, 3225, 3314, 3437),
    ),
    "broken base64 while errors are ignored": Difference(
        "Flink's parser stops inside the text and the whole row becomes null; here only the field is null",
        (1288, 1666, 2990),
    ),
    "date beyond 32 bits of days": Difference(
        "Flink wraps around to another date; here it cannot be read",
        (263, 264, 2459),
    ),
}  # fmt: skip

RAW_DECODE = {
    "text that is not UTF-8": Difference(
        "Flink keeps the bytes in a STRING; nothing after it in the platform can hold them, so the message goes to "
        "quarantine (declare BYTES to keep them)",
        (62,),
    ),
}

AVRO_DECODE = {
    "timestamps of more digits than milliseconds, read as milliseconds, beyond 64 bits of microseconds": Difference(
        "Flink's Avro reader takes the microseconds that the schema promises for milliseconds, which gives years "
        "beyond 294247; they cannot be held, and the message goes to quarantine",
        (24, 27, 98, 147, 178, 182, 186),
    ),
    "TIMESTAMP_LTZ inside a ROW": Difference(
        "Flink writes it but refuses to read it back, when the table is declared; here it is read",
        (51, 155, 167),
    ),
}

CDC_DECODE = {
    "an update of several rows in one Canal message": Difference(
        "Flink asks of all rows of the message together whether the old values name a column, so a column that another "
        "row changed becomes null in the image before; here each row is asked (its own value stands)",
        (3, 76),
    ),
}

DIFFERENCES: dict[str, dict[str, Difference]] = {
    "json_decode": JSON_DECODE,
    "raw_decode": RAW_DECODE,
    "avro_decode": AVRO_DECODE,
    "cdc_decode": CDC_DECODE,
}
"""By the name of the file of vectors."""
