from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import upsert_platform
from upsert_platform.graph.project_component import UpsertProjectComponent

DEMO = Path(upsert_platform.__file__).parent / "demo" / "project"
CHECKOUT = Path(upsert_platform.__file__).parent.parent
LOADER = """
import sys
from pathlib import Path
import dagster as dg
defs = dg.load_from_defs_folder(path_within_project=Path(sys.argv[1]))
repository = defs.get_repository_def()
print(sorted(key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()))
found = repository.get_top_level_resources()
print(*{item.configurable_resource_cls.__name__ for name, item in found.items() if name.startswith("platform")})
"""


def make_code_location(folder: Path, *, sql: str | None = None) -> Path:
    """A Dagster project whose only definitions are a component beside its declarations."""
    (folder / "pyproject.toml").write_text(
        textwrap.dedent("""
            [tool.dg]
            directory_type = "project"
            [tool.dg.project]
            root_module = "shop"
        """)
    )
    instance = folder / "shop" / "defs" / "users"
    instance.mkdir(parents=True)
    for package in (folder / "shop", folder / "shop" / "defs"):
        (package / "__init__.py").touch()
    (instance / "defs.yaml").write_text(
        textwrap.dedent("""
            type: upsert_platform.graph.project_component.UpsertProjectComponent
            attributes:
              home: lake
              spark: {spark.driver.memory: 1g}
        """)
    )
    if sql is None:
        shutil.copy(DEMO / "users.sql", instance / "users.sql")
        names = re.findall(r"\$\{(\w+)\}", (DEMO / "users.sql").read_text())
        (instance / "variables.yaml").write_text("".join(f"{name}: {_value(name)}\n" for name in names))
    else:
        (instance / "users.sql").write_text(sql)
    return instance


def _value(name: str) -> str:
    """What fits a variable of the demo; nobody listens there."""
    if name.endswith("ENDPOINT"):
        return "http://127.0.0.1:1"
    return "127.0.0.1:1" if name.endswith("SERVERS") else "shop"


def load(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOADER, str(folder / "shop" / "defs")],
        capture_output=True, text=True, cwd=folder,
        env={"PYTHONPATH": os.pathsep.join([str(folder), str(CHECKOUT)]), "PATH": os.environ["PATH"]},
    )  # fmt: skip


def test_a_defs_yaml_beside_the_declarations_gives_their_assets(tmp_path: Path) -> None:
    make_code_location(tmp_path)
    done = load(tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assets, platform = done.stdout.splitlines()[-2:]
    for table in ("users", "users_serving", "users_warehouse"):
        assert table in assets
    assert platform == "PlatformResource"


def test_errors_of_the_declarations_are_all_listed_by_a_location_that_loads(tmp_path: Path) -> None:
    make_code_location(tmp_path, sql="CREATE TABLE a (id BIGNT);\nDROP TABLE a;")
    done = load(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "users.sql:1: error: column 'id'" in done.stderr
    assert "users.sql:2: error: DROP is not supported" in done.stderr


def test_options_are_checked_and_completed_when_the_location_loads(tmp_path: Path) -> None:
    read = "CREATE TABLE a (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'a');"
    make_code_location(tmp_path, sql=read)
    done = load(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "'key.format'" in done.stderr
    assert "'properties.bootstrap.servers'" in done.stderr


def test_the_component_is_found_in_the_registry_under_its_short_name() -> None:
    """`dg list components` loads the modules of the entry point and looks at what they hold."""
    from dagster.components.core.package_entry import discover_package_objects
    from dagster_shared.serdes.objects import EnvRegistryKey

    (point,) = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["entry-points"][
        "dagster_dg_cli.registry_modules"
    ].values()
    key = EnvRegistryKey(namespace=point, name="UpsertProjectComponent")
    assert discover_package_objects([point])[key] is UpsertProjectComponent


def test_the_package_is_imported_without_dagster() -> None:
    code = "import sys, upsert_platform; assert 'dagster' not in sys.modules; upsert_platform.UpsertProjectComponent"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr


def test_tables_of_one_name_in_two_components_need_two_lakes(tmp_path: Path) -> None:
    """Whatever the keys of their assets: a run refuses the changelog that the other one has made."""
    first = make_code_location(tmp_path)
    second = first.parent / "others"
    shutil.copytree(first, second)
    defs = (second / "defs.yaml").read_text()
    prefixed = defs.rstrip() + "\n  translation: {key_prefix: others}\n"
    (second / "defs.yaml").write_text(prefixed)
    done = load(tmp_path)
    assert done.returncode == 0, done.stderr
    said = re.search(r"table '\w+' of (\S+) is declared in (\S+), too, whose component has the same", done.stderr)
    assert said is not None
    assert {Path(said[1]), Path(said[2])} == {first, second}
    (second / "defs.yaml").write_text(prefixed.replace("home: lake", "home: another"))
    done = load(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "whose component has the same lake" not in done.stderr
    assert "others/" in done.stdout
