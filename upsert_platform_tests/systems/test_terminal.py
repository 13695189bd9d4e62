"""Commands on terminals of 80 and of 120 columns: nothing crashes, and no table is wider.

`UPSERT_SCREENSHOTS` names a folder for pictures of what every command prints.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click import Context
from confluent_kafka import Producer

from upsert_platform.cli.main import main

pytestmark = [pytest.mark.systems, pytest.mark.timeout(900)]
COMMAND = Path(sys.executable).parent / "upsert-platform"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>]")
COLUMNS = re.compile(r"\S  +\S.*\S  +\S")
"""A line of a table; sentences and commands are as long as they are, so that they can be copied."""
PROJECT = """
CREATE TABLE orders (order_id BIGINT, customer STRING, amount DECIMAL(12, 2), ordered_at TIMESTAMP(3), state STRING,
  PRIMARY KEY (order_id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'shop.orders',
  'properties.bootstrap.servers' = '${UPSERT_KAFKA_BOOTSTRAP_SERVERS}', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE open_orders (order_id BIGINT, customer STRING, amount DECIMAL(12, 2), PRIMARY KEY (order_id) NOT ENFORCED)
  WITH ('connector' = 'tablestore', 'tablestore.endpoint' = '${UPSERT_TABLESTORE_ENDPOINT}',
  'tablestore.instance.name' = '${UPSERT_TABLESTORE_INSTANCE}', 'auto.create' = 'true',
  'tablestore.access.key.id' = '${UPSERT_TABLESTORE_ACCESS_KEY_ID}',
  'tablestore.access.key.secret' = '${UPSERT_TABLESTORE_ACCESS_KEY_SECRET}');
CREATE TABLE orders_per_customer (customer STRING, orders BIGINT, amount DECIMAL(38, 2),
  PRIMARY KEY (customer) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'shop.orders-per-customer',
  'properties.bootstrap.servers' = '${UPSERT_KAFKA_BOOTSTRAP_SERVERS}', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO open_orders SELECT order_id, customer, amount FROM orders WHERE state <> 'closed';
INSERT INTO orders_per_customer SELECT customer, COUNT(*), SUM(amount) FROM orders WHERE customer IS NOT NULL
  GROUP BY customer;
"""
COMMANDS = (
    "validate",
    "explain",
    "status",
    "peek topics/orders",
    "peek open_orders",
    'query "SELECT customer, COUNT(*) AS orders, SUM(amount) AS amount FROM orders GROUP BY ALL ORDER BY ALL"',
    'query "SELECT * FROM changelogs.orders"',
    "quarantine list",
    "quarantine show orders shop.orders-0@7",
    "discover",
    "discover --match 'shop.*' --to tablestore --into found",
    "import job.sql --into imported",
    "send orders one.jsonl --dry-run",
    "options",
    "options tablestore",
    "local status",
)
"""What is typed on terminals of both widths: commands that print tables and need no Spark."""
OTHERS = (
    "sync",
    "verify",
    "reconcile open_orders --dry-run",
    "audit open_orders",
    "prove open_orders",
    "plan",
    "init first",
    "replay orders --dry-run",
    "reset open_orders --dry-run",
    "erase orders '{\"order_id\": 1}' --dry-run",
    "pause open_orders",
    "resume open_orders",
    "run verify",
    "session status",
    "doctor",
    "explain-error Connection refused",
    "submit-args",
    "adopt open_orders",
    "apply --yes",
)
"""What is typed for pictures besides."""


@dataclass(frozen=True)
class Terminal:
    """A shell in a folder with a project that was synced once."""

    folder: Path
    environment: dict[str, str]

    def type(self, command: str, *, columns: int) -> tuple[int, str]:
        """What a command ends with and prints, escapes included."""
        pid, file = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve("/bin/bash", ["bash", "-c", f"upsert-platform {command}"], self.environment)
        fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        printed = bytearray()
        while select.select([file], [], [], 120)[0]:
            try:
                part = os.read(file, 1 << 16)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            printed += part
        os.close(file)
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status), printed.decode("utf-8", "replace")


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("terminal")
    dropped = ("UPSERT_", "DAGSTER_", "COLUMNS", "LINES", "NO_COLOR")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environment |= {"PATH": f"{COMMAND.parent}:{environment['PATH']}", "TERM": "xterm-256color"}
    environment |= {"UPSERT_SPARK_SESSION": "off", "UPSERT_SPARK_LOCAL_ROWS": "250000"}
    environment["UPSERT_PLATFORM_PROJECT"] = str(folder / "shop")
    (folder / "shop").mkdir()
    (folder / "shop" / "shop.sql").write_text(PROJECT)
    (folder / "job.sql").write_text("SET 'table.exec.state.ttl' = '36 h';\n" + PROJECT)
    (folder / "one.jsonl").write_text('{"order_id": 9, "customer": "ann"}\n')

    def call(*words: str) -> None:
        done = subprocess.run([COMMAND, *words], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    call("local", "up", "--only", "kafka,tablestore")
    try:
        call("send", "orders", "one.jsonl", "--create-topic")
        env = (folder / ".upsert_platform" / "local" / "local.env").read_text("utf-8")
        servers = dict(line.split("=", 1) for line in env.splitlines() if "=" in line)["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
        producer = Producer({"bootstrap.servers": servers})
        for number, customer in enumerate(["ann", "bob", "Ann-Kathrin of the North Sea"] * 2):
            row = {"order_id": number, "customer": customer, "amount": 12.5, "ordered_at": "2024-05-01 10:00:00.123"}
            key, value = json.dumps({"order_id": number}), json.dumps({**row, "state": "open"})
            producer.produce("shop.orders", key=key, value=value)
        producer.produce("shop.orders", key=b"text-7", value=b'{"order_id": 7, "amount": "many"}')
        producer.flush()
        call("sync")
        yield Terminal(folder, environment)
    finally:
        call("local", "down")


def lines(printed: str) -> list[str]:
    """What stands on the lines of a terminal in the end: escapes are gone, and what a carriage return writes over."""
    found = []
    for line in ESCAPES.sub("", printed).replace("\r\n", "\n").split("\n"):
        found.append(line.rsplit("\r", 1)[-1])
    return found


@pytest.mark.soak
@pytest.mark.parametrize("columns", [80, 120])
def test_every_table_fits_its_terminal(terminal: Terminal, columns: int) -> None:
    wrong = {}
    for command in (*COMMANDS, *(OTHERS if os.environ.get("UPSERT_SCREENSHOTS") else ())):
        typed = re.sub(r"(--into \w+|init \w+)", rf"\1-{columns}", command)
        ended, printed = terminal.type(typed, columns=columns)
        shown = lines(printed)
        wide = [line for line in shown if len(line) > columns and COLUMNS.search(line)]
        if (ended and command in COMMANDS) or wide or "Traceback" in printed:
            wrong[command] = (ended, wide, shown[-5:])
        keep_picture(f"{columns}-{re.sub(r'[^a-z]+', '-', command)[:40]}", command, printed, columns)
    assert not wrong


def test_no_command_is_left_out() -> None:
    """Those that go on until they are ended, or that need a browser, a cluster or minutes, are tested elsewhere."""
    typed = {command.split()[0] for command in (*COMMANDS, *OTHERS)}
    assert set(main.list_commands(Context(main))) - typed == {"demo", "package", "setup", "stream", "ui"}


def keep_picture(name: str, command: str, printed: str, columns: int) -> None:
    folder = os.environ.get("UPSERT_SCREENSHOTS")
    if not folder:
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(f"$ upsert-platform {command}", markup=False, highlight=False)
    console.print(
        Text.from_ansi("\n".join(line.rsplit("\r", 1)[-1] for line in printed.replace("\r\n", "\n").split("\n")))
    )
    (Path(folder) / f"{name}.html").write_text(console.export_html(inline_styles=True), "utf-8")
