"""The protocol of a connector; each room has one light object per connector, registered in one list.

What a connector can do is inherited: a `Readable` gives sources, a `Writable` opens destinations, in tables of a
`Searchable` queries find rows by their keys, and `doctor` inspects those of an `Inspectable`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from upsert_platform.core.destination import Destination
from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.model import Insert, Table
from upsert_platform.core.options import Settings
from upsert_platform.core.source import Source

if TYPE_CHECKING:
    import pyarrow as pa

Checked = TypeVar("Checked")


@dataclass(frozen=True, slots=True)
class EndpointValue:
    """One value of a resource.

    Attributes:
        field: its name in the resource.
        option: of tables that leave it out.
        variable: which gives it where the resource does not.
        credential: credentials are taken all together or not at all.
        stand_in: value where nothing is reached; one of credentials is taken out of messages, wherever it stands.
    """

    field: str
    option: str
    variable: str
    credential: bool = False
    stand_in: str = "no-key-in-tests"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A written table as its system has it.

    Attributes:
        what: its name and place, for messages.
        differences: from its declaration, with their remedies; empty where there is none.
    """

    what: str
    exists: bool
    differences: str = ""


@dataclass(frozen=True, slots=True)
class ControlPlace:
    """The place that holds a table's position; two tables that share one would take each other's position.

    Attributes:
        control: the record, for comparing: endpoint, scope, control table, table.
        told: the table that both write, for a message.
        remedy: what keeps them apart, for the same message.
    """

    control: tuple[str, ...]
    told: str
    remedy: str


class Connector(ABC):
    """One value of the option ``connector``. Holds no state and opens no connection.

    Attributes:
        name: the value.
        kind: of the system, as Dagster shows it.
        endpoint: which resource completes the options of tables; ``none`` where there is none.
        endpoint_values: its values; connectors of one endpoint have the same.
        option_model: options of its tables, with `about` and `ignored` for the reference; None where the reference
            has a section of its own for them.
        ignored: options that are accepted with a warning, to the reason.
        place_option: the option that names the table in the system; the declared name if it is not given.
        scope_options: the options that tell what the name is unique in.
        stream_group: group of the assets that stand for what tables read.
        has_topics: whether tables stand for topics of Kafka, to which records can be sent.
        pipeline_source: ``type`` of the source of an ingestion pipeline whose tables are found by asking a server, and
            declared with this connector; None where there is none.
        keyed: whether every table needs a primary key.
        pipeline_options: of a table that an ingestion pipeline writes; None where it cannot.
        pipeline_type: the ``type`` of a pipeline's sink that stands for it; its name if empty.
        tells_before: tables need to know what rows were before a change, so that inserts into them are kept-up queries.
        read_instead: reason and remedy for an INSERT INTO that reads a table of a connector that cannot be read. Empty:
            the message lists the connectors that can.
        written_instead: reason and remedy for an INSERT INTO a table of a connector that writes none. Empty: the
            message lists the connectors that write.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    endpoint: ClassVar[str]
    endpoint_values: ClassVar[tuple[EndpointValue, ...]] = ()
    option_model: ClassVar[type[Settings] | None] = None
    about: ClassVar[str] = ""
    ignored: ClassVar[Mapping[str, str]] = {}
    place_option: ClassVar[str] = "table.name"
    scope_options: ClassVar[tuple[str, ...]] = ()
    stream_group: ClassVar[str] = "topics"
    has_topics: ClassVar[bool] = False
    pipeline_source: ClassVar[str | None] = None
    keyed: ClassVar[bool] = False
    pipeline_options: ClassVar[Mapping[str, str] | None] = None
    pipeline_type: ClassVar[str] = ""
    tells_before: ClassVar[bool] = False
    read_instead: ClassVar[str] = ""
    written_instead: ClassVar[str] = ""

    @abstractmethod
    def unused_problems(self, table: Table) -> list[Problem]:
        """Return the problems of a table that no insert names."""

    def is_observed(self, table: Table) -> bool:
        """Return whether a table is of use without an insert: as a source asset of what others write."""
        return False

    def pipeline_place(self, name: str, options: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
        """Options of one table that an ingestion pipeline writes, and what is wrong with them.

        Args:
            name: of the table.
            options: of the sink, which may tell the place of several tables at once.
        """
        del name
        return dict(options), None

    def stored_as(self, table: Table) -> str:
        """Return the storage identity of a table: the system, the namespace of the name, and the name."""
        scope = next((table.options[name] for name in self.scope_options if name in table.options), "")
        name = table.options.get(self.place_option, table.name)
        return ".".join(part for part in (self.kind, scope, name) if part)


class Readable(Connector):
    """A connector whose tables inserts can read."""

    @abstractmethod
    def read(self, table: Table) -> tuple[Source | None, list[Problem]]:
        """Checks a table that is read: its source, or None when there are errors, and everything found."""

    @abstractmethod
    def streams(self, table: Table) -> tuple[str, ...]:
        """Names of what a declared table reads (its topics), for assets; options need not be right."""

    def unused_problems(self, table: Table) -> list[Problem]:
        """Return the problems of a table that no insert names, judged as a source."""
        return self.read(table)[1]


class KeyReader(ABC):
    """Finds rows of a table by their primary key, in the process that asks. Data: it is handed to tasks."""

    @abstractmethod
    def open(self) -> AbstractContextManager[Callable[[pa.Table], Iterator[pa.RecordBatch]]]:
        """Connects; what it gives finds rows.

        Given keys (columns named as the primary key; each key once, none with a null) it gives the rows of the table
        that have one of them, and perhaps others too, in declared columns and types.

        Raises:
            DestinationError: the table is missing, differs from its declaration, or refuses to be read.
            EndpointError: no answer, or credentials refused.
        """


class KeysInTask(KeyReader):
    """Finds rows as tasks do: by a function for ``mapInArrow``."""

    @abstractmethod
    def fetching(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the function, from keys to their rows, once the table is compared with its declaration."""

    @contextmanager
    def open(self) -> Iterator[Callable[[pa.Table], Iterator[pa.RecordBatch]]]:
        """Compares the table; the function connects for each question."""
        fetch = self.fetching()
        yield lambda keys: fetch(iter(keys.to_batches()))


class WholeTable(KeyReader):
    """A small table without a look-up of its own: each batch reads it once, as a whole, and finds rows in what it read.

    The process that plans the batch reads it, so it need not be reached from Spark's workers.
    """

    @abstractmethod
    def rows(self) -> pa.Table:
        """All rows of the table as it is now, in declared columns and types.

        Raises:
            DestinationError: the table is missing, too large, or its rows cannot be read as declared.
            EndpointError: no answer, or credentials refused.
        """

    @contextmanager
    def open(self) -> Iterator[Callable[[pa.Table], Iterator[pa.RecordBatch]]]:
        """Reads the table; every question is answered by all rows."""
        table = self.rows()
        yield lambda keys: iter(table.to_batches())


class Searchable(Connector):
    """A connector in whose tables queries find rows by their keys.

    Attributes:
        finds_by_any: rows are found by whatever columns a statement sets equal to others, so a table needs no primary
            key; of one without it a row may find several.
    """

    finds_by_any: ClassVar[bool] = False

    @abstractmethod
    def key_reader(self, table: Table) -> tuple[KeyReader | None, list[Problem]]:
        """Checks a table: what reads it, or None when there are errors, and everything found.

        The table has a primary key unless the connector `finds_by_any`.
        """


class Writable(Connector, Generic[Checked]):
    """A connector whose tables inserts can write; `Checked` is its own form of a table that passed its rules."""

    @abstractmethod
    def check(self, table: Table) -> tuple[Checked | None, list[Problem]]:
        """Checks a table that is written: its checked form, or None when there are errors, and everything found."""

    @abstractmethod
    def open(self, checked: Checked) -> Destination:
        """The destination of a checked table; the caller closes it."""

    def fraction_digits(self, table: Table) -> int:
        """Return the number of fractional digits of a second that the table stores, if fewer than declared; 0 if all
        are stored. The default is microseconds.
        """
        return 6

    def places(self, checked: Checked) -> tuple[str, ...]:
        """Columns outside the primary key that, beside it, identify a row (`capabilities.KeepsOlderRows`)."""
        return ()

    def rows_per_request(self, checked: Checked) -> int | None:
        """Return how many rows one write request takes at most; None where requests do not count rows."""
        return None

    def explained(self, checked: Checked) -> tuple[str, ...]:
        """Lines that `explain` shows of how a table is written; none where nothing is a choice."""
        return ()

    def control_place(self, checked: Checked) -> ControlPlace | None:
        """Return the place of a table's position, or None if no other declared table can share it."""
        return None

    def first_rows(self, checked: Checked, limit: int) -> tuple[str, pa.Table] | None:
        """Return which rows were looked at, in words, and some rows in declared types; None where it is unknown how."""
        return None

    def overwrite_problems(self, insert: Insert, table: Table) -> list[Problem]:
        """Return the problems of INSERT OVERWRITE into a table."""
        return [
            Problem(
                f"INSERT OVERWRITE {insert.target}: needs a table with 'connector' = 'maxcompute' and 'sink.operation'"
                " = 'insert'; a table that is kept equal to the last value per key is followed with INSERT INTO",
                insert.location,
            )
        ]

    def unused_problems(self, table: Table) -> list[Problem]:
        """Return the problems of a table that no insert names, judged as a target."""
        return self.check(table)[1]

    def checked(self, table: Table) -> Checked:
        """The checked form of a table.

        Raises:
            DeclarationError: its options do not fit.
        """
        found, problems = self.check(table)
        if found is None:
            raise DeclarationError([problem for problem in problems if problem.severity == "error"])
        return found


class Inspectable(Writable[Checked]):
    """A connector whose tables diagnostics inspect."""

    @abstractmethod
    def status(self, checked: Checked) -> TableStatus:
        """Return the table as its system has it.

        Raises:
            EndpointError: not reachable, or credentials refused.
        """
