"""Proves a declaration: it is read as `validate` reads it, and decodes the records that it was made of."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.declarations.project import load_project
from upsert_platform.discovery.sample import Sample
from upsert_platform.kafka.table import KafkaTable, read_kafka_table
from upsert_platform.sync.binding import bind
from upsert_platform.sync.connectors import CONNECTORS


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of trying a declaration on a sample.

    Attributes:
        decoded: records of the sample that give rows, or that a named rule passes over.
        refused: reason to how many records.
        problems: that `validate` would tell, but for variables that are not set.
    """

    decoded: int
    refused: Mapping[str, int]
    problems: tuple[str, ...]


def prove(text: str, name: str, sample: Sample, variables: Mapping[str, str]) -> Proof:
    """Read a declaration and decode a sample with it.

    Args:
        text: of the file.
        name: of the table that reads the topic.
        variables: values for ``${NAME}`` that neither the environment nor a file sets.

    Raises:
        DeclarationError: the table itself is not declared rightly.
        EndpointError: a schema registry does not answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "discovered.sql").write_text(text, "utf-8")
        project, problems = load_project(Path(folder), variables, connectors=CONNECTORS)
        with suppress(DeclarationError):  # all of them are in `problems`
            bind(project, problems, defaults={})
    kafka, found = read_kafka_table(project.tables[name]) if name in project.tables else (None, problems)
    if kafka is None:
        raise DeclarationError([item for item in found if item.severity == "error"])
    refused = _refused(kafka, sample)
    told = tuple(item.message for item in problems if _counts(item))
    return Proof(len(sample.records) - sum(refused.values()), refused, told)


def _counts(problem: Problem) -> bool:
    return problem.severity == "error" and "variable ${" not in problem.message


def _refused(kafka: KafkaTable, sample: Sample) -> dict[str, int]:
    """Return the reasons for which records give no rows, with their counts."""
    import numpy as np
    import pyarrow as pa

    from upsert_platform.kafka.source.decode import RecordDecoder
    from upsert_platform.kafka.source.records import RecordBlock

    if not sample.records:
        return {}
    records = [item for item in sample.records if item.key is not None] if kafka.is_upsert else list(sample.records)
    block = RecordBlock(
        sample.topic,
        0,
        pa.array([item.key for item in records], pa.binary()),
        pa.array([item.value for item in records], pa.binary()),
        np.array([item.offset for item in records], np.int64),
        np.zeros(len(records), np.int64),
        None,
    )
    found: dict[str, int] = {}
    for reason in RecordDecoder(kafka).decode(block).verdicts.refused.values():
        found[reason] = found.get(reason, 0) + 1
    if len(records) < len(sample.records):
        found["the record has no key"] = len(sample.records) - len(records)
    return found
