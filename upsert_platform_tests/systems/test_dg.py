"""`dg`: the component is scaffolded into a project of its layout, its YAML is checked, its definitions are listed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tablestore import OTSClient

from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer

pytestmark = pytest.mark.systems
COMPONENT = "upsert_platform.graph.project_component.UpsertProjectComponent"
PYPROJECT = """
[project]
name = "shop"
version = "0.1"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
registry_modules = ["upsert_platform.graph.project_component"]
"""
DEFINITIONS = """
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "shop"
    (package / "defs").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (package / "definitions.py").write_text(DEFINITIONS)
    for name in ("__init__.py", "defs/__init__.py"):
        (package / name).touch()
    return tmp_path


VARIABLES = {
    "UPSERT_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9",
    **{f"UPSERT_TABLESTORE_{name}": "x" for name in ("INSTANCE", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET")},
    "UPSERT_TABLESTORE_ENDPOINT": "http://127.0.0.1:9",
}


def dg(folder: Path, *arguments: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    bin_folder = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": path,
        "PYTHONWARNINGS": "ignore",
        "DAGSTER_HOME": str(folder),
        "UPSERT_PLATFORM_HOME": str(folder / "home"),
        **(VARIABLES if variables is None else variables),
    }
    return subprocess.run(
        [bin_folder / "dg", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_component_is_scaffolded_checked_and_listed(folder: Path) -> None:
    made = dg(folder, "scaffold", "defs", COMPONENT, "orders")
    assert made.returncode == 0, made.stdout + made.stderr
    component = folder / "src" / "shop" / "defs" / "orders"
    assert {"defs.yaml", "orders.sql"} <= {path.name for path in component.iterdir()}
    checked = dg(folder, "check", "yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    listed = dg(folder, "list", "defs", "--json")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    found = json.loads(listed.stdout)
    assert {item["name"] for item in found["jobs"]} >= {"sync", "verify", "reconcile", "replay", "compact"}
    assert "changelogs/orders" in {item["asset_key"] for item in found["assets"]}

    (component / "defs.yaml").write_text(f"type: {COMPONENT}\n\nattributes:\n  kafka: {{}}\n  kafak: {{}}\n")
    wrong = dg(folder, "check", "yaml")
    assert wrong.returncode != 0
    assert "kafak" in wrong.stdout + wrong.stderr
    assert "defs.yaml:5" in wrong.stdout + wrong.stderr


def test_definitions_pass_without_any_variable_and_list_those_that_are_not_set(folder: Path) -> None:
    assert dg(folder, "scaffold", "defs", COMPONENT, "orders").returncode == 0
    # As in a container that has nothing but the command: no home, no variable of Dagster or of the platform.
    bare = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(folder / "src")}
    checked = subprocess.run(
        [Path(sys.executable).parent / "dg", "check", "defs"], cwd=folder, env=bare, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for name in VARIABLES:
        assert name in checked.stdout + checked.stderr


TOPICS = """
type: {component}

attributes:
  topics: {{match: 'shop.*', to: [tablestore]}}
"""


def test_topics_that_match_are_discovered_into_a_state_that_needs_no_broker(
    folder: Path, kafka_bootstrap: str, make_topic: Callable[..., str], shared_tablestore: TablestoreServer
) -> None:
    servers = {
        "UPSERT_KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap,
        "UPSERT_TABLESTORE_ENDPOINT": shared_tablestore.endpoint,
        "UPSERT_TABLESTORE_INSTANCE": shared_tablestore.instance,
        "UPSERT_TABLESTORE_ACCESS_KEY_ID": shared_tablestore.access_key_id,
        "UPSERT_TABLESTORE_ACCESS_KEY_SECRET": shared_tablestore.access_key_secret,
    }
    away = {**servers, "UPSERT_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9"}
    component = folder / "src" / "shop" / "defs" / "topics"
    component.mkdir()
    (component / "defs.yaml").write_text(TOPICS.format(component=COMPONENT))

    def assets(variables: dict[str, str]) -> tuple[set[str], str]:
        listed = dg(folder, "list", "defs", "--json", variables=variables)
        assert listed.returncode == 0, listed.stdout + listed.stderr
        return {item["asset_key"] for item in json.loads(listed.stdout)["assets"]}, listed.stderr

    # Nothing was discovered and nobody can be asked: the location loads, and says what to type.
    checked = dg(folder, "check", "defs", variables=away)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "dg utils refresh-defs-state" in checked.stdout + checked.stderr
    refused = dg(folder, "utils", "refresh-defs-state", variables=away)
    assert refused.returncode != 0
    assert "127.0.0.1:9" in refused.stdout + refused.stderr

    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for name in ("shop.customers", "shop.orders", "other.things"):
        make_topic(name=name, config={"cleanup.policy": "compact"})
        producer.produce(name, key="c-1", value=json.dumps({"customer": "c-1", "n": 1}))
    producer.flush()
    refreshed = dg(folder, "utils", "refresh-defs-state", variables=servers)
    assert refreshed.returncode == 0, refreshed.stdout + refreshed.stderr
    found, _ = assets(away)  # the last state
    assert {"changelogs/shop_customers", "tables/shop_orders_tablestore"} <= found
    assert not any("other" in key for key in found)
    checked = dg(folder, "check", "defs", variables=away)
    assert checked.returncode == 0, checked.stdout + checked.stderr

    # A table that the folder declares itself wins, with what is written from it.
    (component / "orders.sql").write_text(
        "CREATE TABLE shop_orders (customer STRING, n STRING, PRIMARY KEY (customer) NOT ENFORCED) WITH ("
        "'connector' = 'upsert-kafka', 'topic' = 'shop.orders', 'key.format' = 'raw', 'value.format' = 'json');\n"
    )
    found, _ = assets(away)
    assert "tables/shop_customers_tablestore" in found
    assert "tables/shop_orders_tablestore" not in found

    # A run reads the state in a process of its own.
    command = Path(sys.executable).parent / "upsert-platform"
    environment = {**os.environ, **servers, "PYTHONPATH": str(folder / "src"), "DAGSTER_HOME": str(folder)}
    environment |= {"UPSERT_PLATFORM_HOME": str(folder / "home"), "UPSERT_SPARK_LOCAL_ROWS": "1000"}
    done = subprocess.run([command, "sync"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    client = OTSClient(*(servers[f"UPSERT_TABLESTORE_{name}"] for name in ("ENDPOINT", "ACCESS_KEY_ID",
                       "ACCESS_KEY_SECRET", "INSTANCE")))  # fmt: skip
    _, row, _ = client.get_row("shop_customers_tablestore", [("customer", "c-1")], max_version=1)
    assert [(name, value) for name, value, _ in row.attribute_columns] == [("n", 1)]
