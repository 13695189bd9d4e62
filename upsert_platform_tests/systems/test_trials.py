"""Trials of new users: the commands of a page, typed in a fresh folder, lead to rows; the time of each is printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
COMMAND = str(Path(sys.executable).parent / "upsert-platform")
Typed = Callable[[str], str]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(page: str, beginning: str) -> list[str]:
    """The lines of the shell block that begins so."""
    (found,) = [block for block in blocks(page, "sh") if block.startswith(beginning)]
    return found.splitlines()


@pytest.fixture
def typed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Typed]:
    """Types a command into a shell of a fresh folder, and returns what it prints; local servers end afterwards."""
    dropped = ("UPSERT_", "DAGSTER_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environment |= {"PATH": f"{Path(COMMAND).parent}:{environment['PATH']}", "UPSERT_SPARK_SESSION": "off"}

    def call(command: str) -> str:
        began = time.monotonic()
        words = ["bash", "-euc", command]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
        with capfd.disabled():
            sys.stdout.write(f"\n{time.monotonic() - began:6.1f} s  {command}")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    yield call
    call("upsert-platform local down || true")


def rows(typed: Typed, table: str, project: str) -> list[dict[str, object]]:
    """The rows of a table, or the records of a topic by its key, without the columns that say where they came from."""
    found = [
        json.loads(line) for line in typed(f"upsert-platform peek {table} --project {project} --json").splitlines()
    ]
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in found]


def shown(text: str, *words: Sequence[object]) -> bool:
    """Whether each list of words is, in order, the cells of a line."""
    lines = [line.split() for line in text.splitlines()]
    return all([str(word) for word in item] in lines for item in words)


def test_own_topic_with_text_keys_to_its_rows_in_four_commands(tmp_path: Path, typed: Typed) -> None:
    up = "upsert-platform local up --only kafka,tablestore"
    typed(up)
    env = (tmp_path / ".upsert_platform" / "local" / "local.env").read_text("utf-8")
    servers = dict(line.split("=", 1) for line in env.splitlines() if "=" in line)["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    topic = "shop.customers"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": servers})
    for customer, name in [("c-1", "ann"), ("c-2", "bob"), ("c-1", "anna"), ("c-3", "eve")]:
        producer.produce(topic, key=customer, value=json.dumps({"customer": customer, "name": name}))
    producer.produce(topic, key="c-3", value=None)
    producer.flush()
    typing = commands("discovering.md", "upsert-platform discover shop.customers --to")
    assert len([up, *typing]) <= 5
    last = [typed(command) for command in typing][-1]
    assert shown(last, ("c-1", "anna"), ("c-2", "bob")), last
    assert rows(typed, "shop_customers_tablestore", "shop") == [
        {"customer": "c-1", "name": "anna"}, {"customer": "c-2", "name": "bob"},
    ]  # fmt: skip


def test_flink_job_with_legacy_window_login_and_state_ttl_in_four_commands(tmp_path: Path, typed: Typed) -> None:
    job, orders = blocks("from-flink-sql.md", "text")
    for part in ("table.exec.state.ttl", "TUMBLE(ordered_at", "properties.sasl.jaas.config"):
        assert part in job
    (tmp_path / "job.sql").write_text(job)
    (tmp_path / "orders.jsonl").write_text(orders)
    typing = commands("from-flink-sql.md", "upsert-platform import job.sql")
    assert len(typing) <= 4
    first, *_, last = [typed(command) for command in typing]
    assert "s3cret" not in first + (tmp_path / "shop" / "job.sql").read_text()
    found = {(row["shop"], row["minute_start"]): (row["orders"], row["amount"])
             for row in rows(typed, "orders_per_minute", "shop")}  # fmt: skip
    counted: dict[tuple[str, str], tuple[int, float]] = {}
    for order in map(json.loads, orders.splitlines()):
        key = order["shop"], order["ordered_at"][:16] + ":00"
        number, amount = counted.get(key, (0, 0.0))
        counted[key] = number + 1, amount + order["amount"]
    assert found == counted
    assert "berlin" in last
