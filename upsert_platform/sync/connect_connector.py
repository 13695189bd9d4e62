"""The connector `tablestore-connect`: Tablestore by the rules of its Kafka Connect sink, failed records to topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.core.connector import ControlPlace, Writable
from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Table
from upsert_platform.sync.dead_letters import KafkaReports, report_problems, reports_of
from upsert_platform.tablestore.connect.destination import ConnectDestination
from upsert_platform.tablestore.connect.table import CONNECTOR, ConnectSink, read_connect_sink
from upsert_platform.tablestore.connector import control_place

if TYPE_CHECKING:
    from upsert_platform.core.destination import Destination


@dataclass(frozen=True)
class ConnectTarget:
    """A checked sink, and the client that sends its reports; None where none are sent."""

    sink: ConnectSink
    reports: KafkaReports | None


class ConnectConnector(Writable[ConnectTarget]):
    """Stands here and not in its room because reports about failed records are sent by Kafka's."""

    name = CONNECTOR
    kind = "tablestore"
    endpoint = "tablestore"
    scope_options = ("tablestore.instance.name",)

    def check(self, table: Table) -> tuple[ConnectTarget | None, list[Problem]]:
        """Checks a table that is written, and the client properties of its reports."""
        sink, problems = read_connect_sink(table)
        target = None if sink is None else ConnectTarget(sink, reports_of(table))
        return target, [*problems, *report_problems(table)]

    def open(self, checked: ConnectTarget) -> Destination:
        """The table as a destination."""
        return ConnectDestination(checked.sink, reports=checked.reports)

    def fraction_digits(self, table: Table) -> int:
        """All: rows are made of the records themselves."""
        return 0

    def control_place(self, checked: ConnectTarget) -> ControlPlace:
        """A row of the control table."""
        return control_place(checked.sink.settings, checked.sink.table_name)
