"""A topic of one's own, with keys that are plain text, to its rows in Tablestore in five commands, without an edit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]
COMMAND = str(Path(sys.executable).parent / "upsert-platform")
TOPIC = "shop.customers"
COMMANDS = (
    "upsert-platform discover shop.customers --to tablestore --into shop",
    'export UPSERT_PLATFORM_PROJECT="$PWD/shop"',
    "upsert-platform sync",
    "upsert-platform peek shop_customers_tablestore --json",
)
"""After `upsert-platform local up`."""


def test_five_commands_lead_from_a_topic_to_its_rows(tmp_path: Path) -> None:
    dropped = ("UPSERT_", "DAGSTER_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environment |= {"PATH": f"{Path(COMMAND).parent}:{environment['PATH']}", "UPSERT_SPARK_SESSION": "off"}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)

    up = call(COMMAND, "local", "up", "--only", "kafka,tablestore")
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        text = (tmp_path / ".upsert_platform" / "local" / "local.env").read_text("utf-8")
        servers = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)[
            "UPSERT_KAFKA_BOOTSTRAP_SERVERS"
        ]
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": servers})
        for customer, name in [("c-1", "ann"), ("c-2", "bob"), ("c-1", "anna"), ("c-3", "eve")]:
            producer.produce(TOPIC, key=customer, value=json.dumps({"customer": customer, "name": name}))
        producer.produce(TOPIC, key="c-3", value=None)
        producer.flush()
        done = call("bash", "-euc", "\n".join(COMMANDS))
    finally:
        call(COMMAND, "local", "down")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows == [{"customer": "c-1", "name": "anna"}, {"customer": "c-2", "name": "bob"}]
