"""Extras: the base installation works without the packages of other systems, and names the extra that is needed."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from upsert_platform.core.packages import EXTRAS

CHECKOUT = Path(__file__).parents[1]
LEFT_OUT = ("tablestore", "odps", "pymysql", "psycopg", "duckdb", "alibabacloud_credentials")
WITHOUT = f"""
import importlib.abc, importlib.util, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LEFT_OUT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
real = importlib.util.find_spec
absent = lambda name, package=None: None if name.partition(".")[0] in {LEFT_OUT!r} else real(name, package)
importlib.util.find_spec = absent
"""
"""An interpreter without the packages of the extras."""
SHAPE = "(id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ("
SQL = f"""
CREATE TABLE users {SHAPE}'connector' = 'upsert-kafka', 'topic' = 'users',
  'properties.bootstrap.servers' = '127.0.0.1:9', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copy {SHAPE}'connector' = 'upsert-kafka', 'topic' = 'copy',
  'properties.bootstrap.servers' = '127.0.0.1:9', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO copy SELECT * FROM users;
"""
TABLES = {
    "tablestore": "'connector' = 'tablestore', 'tablestore.endpoint' = 'http://127.0.0.1:9',"
    " 'tablestore.instance.name' = 'i', 'tablestore.access.key.id' = 'k', 'tablestore.access.key.secret' = 's'",
    "maxcompute": "'connector' = 'maxcompute', 'odps.end.point' = 'http://127.0.0.1:9', 'odps.project.name' = 'p',"
    " 'odps.access.id' = 'k', 'odps.access.key' = 's', 'table.name' = 'served', 'sink.operation' = 'upsert'",
    "postgres": "'connector' = 'postgres', 'url' = 'jdbc:postgresql://127.0.0.1:9/db', 'table-name' = 'served',"
    " 'username' = 'u', 'password' = 'p'",
}


def without(code: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT + textwrap.dedent(code)], cwd=cwd, capture_output=True, text=True
    )


@pytest.mark.parametrize("system", TABLES)
def test_a_table_names_the_extra_that_it_needs_and_the_others_go_on(system: str, tmp_path: Path) -> None:
    served = f"CREATE TABLE served {SHAPE}{TABLES[system]});\nINSERT INTO served SELECT * FROM users;\n"
    (tmp_path / "tables.sql").write_text(SQL + served)
    code = f"""
    import json
    from pathlib import Path
    from upsert_platform.sync.binding import bind_sound, load
    from upsert_platform.graph.resources import PlatformResource
    from upsert_platform.graph.endpoint_resources import KafkaResource, MaxComputeResource, TablestoreResource
    from upsert_platform.graph.build import definitions_of

    found = bind_sound(*load(Path({str(tmp_path)!r})))
    platform = PlatformResource(project={str(tmp_path)!r}, home={str(tmp_path)!r}, kafka=KafkaResource(),
        tablestore=TablestoreResource(), maxcompute=MaxComputeResource())
    defs = definitions_of(platform)
    keys = [key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()]
    print(json.dumps([[str(item) for item in found.errors], sorted(found.targets), keys]))
    """
    done = without(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    [error], targets, keys = json.loads(done.stdout.splitlines()[-1])
    assert error.endswith(f"is not installed: pip install 'upsert-platform[{system}]'")
    assert "table 'served'" in error
    assert targets == ["copy"]
    assert {"tables/copy", "tables/served"} <= set(keys)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["query", "SELECT 1"], "query"),
        (["local", "up", "--only", "tablestore"], "tablestore"),
        (["local", "up", "--only", "kafka,maxcompute"], "maxcompute"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(words: list[str], extra: str, tmp_path: Path) -> None:
    done = without(f"from upsert_platform.cli.main import main\nmain({words!r})", cwd=tmp_path)
    assert done.returncode == 1
    assert f"pip install 'upsert-platform[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pipeline_of_a_database_names_its_extra(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "source: {type: mysql, hostname: 127.0.0.1, username: u, password: p, tables: shop.orders}\n"
        "sink: {type: upsert-kafka, properties.bootstrap.servers: 127.0.0.1:9}\n"
    )
    done = without(f"from upsert_platform.cli.main import main\nmain(['validate', {str(tmp_path)!r}])", cwd=tmp_path)
    assert done.returncode == 1
    assert "source: package PyMySQL is not installed: pip install 'upsert-platform[mysql]'" in done.stderr


def test_every_extra_is_declared_with_its_package_and_none_of_them_is_in_the_base() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    base = {item.lower() for item in project["dependencies"]}
    for extra, (_, package) in EXTRAS.items():
        assert [item for item in extras[extra] if item.lower().startswith(package.lower())], extra
        assert not [item for item in base if item.startswith(package.lower())], extra
        assert set(extras[extra]) - set(extras["postgres"][:1]) <= {*extras["all"]}
        assert set(extras["all"]) <= set(extras["dev"])


def test_executors_get_the_packages_of_extras_that_are_installed() -> None:
    from upsert_platform.spark.packed_environment import needed_distributions

    packed = {item.metadata["Name"].lower() for item in needed_distributions()}
    assert {"tablestore", "pyodps", "pymysql", "psycopg", "duckdb", "confluent-kafka"} <= packed
    assert not packed & {"dagster", "dagster-webserver", "dagster-postgres", "pytest"}
