"""The connector `filesystem`: files whose rows lookup joins find, read as a whole by each batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.tables import TableLocation, file_system, is_uri
from upsert_platform.core.connector import KeyReader, Searchable, WholeTable
from upsert_platform.core.errors import DestinationError, Problem, SourceLocation
from upsert_platform.core.masking import NO_MASK, Mask
from upsert_platform.core.model import Options, Table
from upsert_platform.core.options import Settings, option, read_settings
from upsert_platform.formats.base import Columns, Decoded
from upsert_platform.formats.factory import FORMATS, build_decoder, validate_format
from upsert_platform.formats.options import CsvSettings, JsonSettings
from upsert_platform.writing.declared import column_problems, without_effect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileInfo, FileSystem

_log = logging.getLogger(__name__)
MOST_BYTES: Final = 64 << 20
"""Of the files of a table together, unpacked: every process that carries out tasks holds all rows."""
_BLOCK: Final = 1 << 16
"""Records that are decoded at once."""
_HIDDEN: Final = (".", "_")
"""Names in a folder that begin with these are no files of the table, as in Flink."""
_LARGER: Final = (
    "keep the rows in a table that finds them by key ('connector' = 'postgres', 'tablestore', 'maxcompute'), or in an"
    " upsert-kafka topic that a plain JOIN follows"
)


class FilesystemSettings(Settings):
    """Options of tables with ``'connector' = 'filesystem'``, by Flink's names."""

    connector: Literal["filesystem"] = option("connector", origin="flink", description="`filesystem`.")
    path: str = option(
        "path", origin="flink", min_length=1,
        description="A file, or a folder with all files below it whose names do not begin with a point or an"
        " underscore: a path, or a URI as the lake's may be, which is reached as the lake is.",
    )  # fmt: skip
    format: Literal["csv", "json"] = option(
        "format", origin="flink", description="Format of the files; its options have its name before them."
    )


class FilesystemConnector(Searchable):
    """`filesystem`: a table in which queries find rows, and nothing else."""

    name = "filesystem"
    kind = "file"
    endpoint = "none"
    finds_by_any = True
    option_model: ClassVar[type[FilesystemSettings]] = FilesystemSettings
    ignored: ClassVar[Mapping[str, str]] = {
        "source.monitor-interval": "each batch reads the files anew",
        "source.report-statistics": "the files are read as a whole",
    }
    about = (
        "Files in which [lookup joins](queries.md#files) find rows. Each batch reads them once, at most"
        f" {MOST_BYTES >> 20} MB in all."
    )
    read_instead = (
        "its files are read at the right of JOIN ... FOR SYSTEM_TIME AS OF alone, for they say nothing of changes. Send"
        " their rows to a topic ('upsert-platform send TABLE ...') and read that"
    )
    written_instead = (
        "files have no rows by key. Write 'upsert-kafka', whose topic a writer of files reads; every changelog is a"
        " Delta Lake table that other engines read"
    )

    def unused_problems(self, table: Table) -> list[Problem]:
        """Return the problems of a table that no statement names."""
        return self.key_reader(table)[1]

    def key_reader(self, table: Table) -> tuple[KeyReader | None, list[Problem]]:
        """Checks options and columns; the files are looked for by a batch."""
        subject = f"table '{table.name}'"
        declared = table.options.get("format", "")
        settings, problems = read_settings(
            FilesystemSettings,
            table.options,
            subject=subject,
            location=table.location,
            ignore=lambda name: name in self.ignored or (declared in FORMATS and name.startswith(f"{declared}.")),
        )
        problems += without_effect(table, self.ignored)
        problems += column_problems(table, system="a filesystem")
        if table.partitioned_by:
            problems.append(
                Problem(
                    f"{subject}: PARTITIONED BY names columns of folders, which are not read; name the folder of one"
                    " partition in 'path', and leave it out",
                    table.location,
                )
            )
        if settings is None:
            return None, problems
        columns = tuple((item.name, item.type) for item in table.physical_columns if item.type is not None)
        place = table.options.location("format") or table.location
        options = _of_format(table.options, settings.format)
        problems += validate_format(
            settings.format, options, columns, side="value", direction="source", subject=subject, location=place
        )
        if any(problem.severity == "error" for problem in problems):
            return None, problems
        return FilesTable(table.name, settings.path, settings.format, dict(options), columns, Mask.of(table)), problems


def _of_format(options: Options, name: str) -> Options:
    own = {key: value for key, value in options.items() if key.startswith(f"{name}.")}
    return Options(own, {key: place for key in own if (place := options.location(key)) is not None})


@dataclass(frozen=True)
class FilesTable(WholeTable):
    """The rows of files.

    Attributes:
        name: of the table.
        path: of the file or folder, as declared.
        format: ``csv`` or ``json``; `options` begin with its name.
        columns: names and types, in declared order.
    """

    name: str
    path: str
    format: str
    options: Mapping[str, str]
    columns: Columns
    mask: Mask = NO_MASK

    @cached_property
    def _settings(self) -> CsvSettings | JsonSettings:
        found, problems = read_settings(
            FORMATS[self.format].settings, Options(self.options), subject=self.name, location=SourceLocation(self.name)
        )
        assert isinstance(found, CsvSettings | JsonSettings), problems
        return found

    def rows(self) -> pa.Table:
        """All rows of the files as they are now; see `WholeTable.rows`. A warning counts records that are left out."""
        import pyarrow as pa

        from upsert_platform.formats.columns import schema_of
        from upsert_platform.formats.file_records import split_file

        decoder = build_decoder(self.format, self.columns, self.options)
        found: list[pa.RecordBatch] = []
        left_out: list[str] = []
        for place, content in self._contents():
            records = iter(split_file(content, self._settings).items())
            while block := list(islice(records, _BLOCK)):
                decoded = decoder.decode([record for _, record in block])
                if decoded.errors and not self._settings.ignore_parse_errors:
                    at = min(decoded.errors)
                    reason = self.mask.reason(decoded.errors[at])
                    raise DestinationError(
                        f"table '{self.name}': {place}:{block[at][0]}: the record cannot be read as {self.format}:"
                        f" {reason}. Correct it, or let such records be passed over:"
                        f" '{self.format}.ignore-parse-errors' = 'true'"
                    )
                rows, without = self._whole(decoded, place, [line for line, _ in block])
                found.append(rows)
                left_out += [f"{place}:{block[at][0]}" for at in sorted({*decoded.errors, *without})]
        if left_out:
            _log.warning(
                "table '%s': %d records that cannot be read are left out, the first at %s ('%s.ignore-parse-errors')",
                *(self.name, len(left_out), left_out[0], self.format),
            )
        return pa.Table.from_batches(found, schema_of(self.columns))

    def _whole(self, decoded: Decoded, place: str, lines: list[int]) -> tuple[pa.RecordBatch, set[int]]:
        """The rows that have a value in every column that is declared NOT NULL; one that has none cannot be read.

        Args:
            place: of the file.
            lines: of the records that were decoded.

        Returns:
            Those rows, and which of the records had others.
        """
        import pyarrow.compute as pc

        rows, messages = decoded.rows, decoded.message
        for name, kind in self.columns:
            column = rows.column(name)
            if kind.nullable or not column.null_count:
                continue
            if not self._settings.ignore_parse_errors:
                line = lines[messages[pc.index(column.is_null(), True).as_py()].as_py()]
                raise DestinationError(
                    f"table '{self.name}': {place}:{line}: column '{name}' is declared NOT NULL, and this record"
                    " has no value for it. Correct it, or declare the column without NOT NULL"
                )
            there = column.is_valid()
            rows, messages = rows.filter(there), messages.filter(there)
        return rows, set(decoded.message.to_pylist()) - set(messages.to_pylist()) if rows is not decoded.rows else set()

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        """The files with their bytes, unpacked where their names end as those of packed files do; by their names.

        Raises:
            DestinationError: there is none, one cannot be read, or all together are too large.
        """
        root, name = _split(self.path)
        location = TableLocation(root, Lake.at(root).options)
        with self._naming(self.path):
            system, folder = file_system(location)
            files = _files(system, f"{folder}{name}")
        if not files:
            raise DestinationError(
                f"table '{self.name}': option 'path' = '{self.path}': there is no such file, and no folder with files"
                " in it"
            )
        left = MOST_BYTES
        for info in files:
            place = info.path if location.path is not None else f"{root}/{info.path}"
            with self._naming(place), system.open_input_stream(info.path) as file:
                content = file.read(left + 1)
            left -= len(content)
            if left < 0:
                raise DestinationError(
                    f"table '{self.name}': the files of 'path' = '{self.path}' have more than {MOST_BYTES >> 20} MB,"
                    f" and each process would hold all of them: {_LARGER}"
                )
            yield place, content

    @contextmanager
    def _naming(self, place: str) -> Iterator[None]:
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (OSError, DeltaError, pa.ArrowException) as error:
            reason = str(error).partition("\n")[0][:300]
            raise DestinationError(
                f"table '{self.name}': {place} cannot be read: {type(error).__name__}: {reason}"
            ) from error


def _split(path: str) -> tuple[str, str]:
    """A path or URI as the folder above it, and its own name: a store is asked below a place, for a name."""
    if not is_uri(path):
        whole = PurePath(path)
        return str(whole.parent), whole.name
    scheme, _, rest = path.rstrip("/").partition("://")
    above, slash, name = rest.rpartition("/")
    return (f"{scheme}://{above}", name) if slash else (f"{scheme}://{rest}", "")


def _files(system: FileSystem, place: str) -> list[FileInfo]:
    """The file of that name, or those below the folder; in the order of their names."""
    from pyarrow.fs import FileSelector, FileType

    info = system.get_file_info(place)
    if info.type is FileType.File:
        return [info]
    below = system.get_file_info(FileSelector(place, allow_not_found=True, recursive=True))
    skipped = len(place.rstrip("/").split("/")) if place else 0
    files = [item for item in below if item.type is FileType.File]
    files = [item for item in files if not any(part.startswith(_HIDDEN) for part in item.path.split("/")[skipped:])]
    return sorted(files, key=lambda item: item.path)
