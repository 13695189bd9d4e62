"""Who may import whom, and what stays unloaded: the table of packages in ARCHITECTURE.md as rules that can fail."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import upsert_platform
from upsert_platform.sync.connectors import CONNECTORS

PACKAGE = Path(upsert_platform.__file__).parent
HEAVY = (
    "pyspark",
    "confluent_kafka",
    "pymysql",
    "psycopg",
    "tablestore",
    "odps",
    "pyarrow",
    "pandas",
    "numpy",
    "deltalake",
    "dagster",
)
VOCABULARY = {"core"}
ROOMS: Mapping[str, set[str]] = {
    "core": set(),
    "spark": VOCABULARY,
    "local": {"spark", "core.errors"},
    "referee": set(),
    "formats": VOCABULARY,
    "sql": VOCABULARY,
    "changelog": VOCABULARY,
    "datagen": VOCABULARY | {"changelog", "sql"},
    "engine": VOCABULARY | {"changelog"},
    "writing": VOCABULARY,
    "kafka": VOCABULARY | {"formats", "changelog", "writing"},
    "tablestore": VOCABULARY | {"formats", "writing"},
    "maxcompute": VOCABULARY | {"writing"},
    "postgres": VOCABULARY | {"changelog", "formats", "writing"},
    "mysql": VOCABULARY | {"changelog", "writing"},
    "declarations": VOCABULARY | {"sql", "tablestore.connect", "changelog", "mysql.options"},
    "sync": VOCABULARY
    | {"engine", "declarations", "sql", "datagen", "formats", "kafka", "tablestore", "maxcompute", "changelog"}
    | {"mysql", "postgres", "writing", "referee"},
    "proofs": VOCABULARY | {"sync", "changelog", "engine", "kafka", "mysql", "writing", "sql.evaluation"},
    "discovery": VOCABULARY
    | {"formats", "kafka", "sync", "declarations", "changelog", "maxcompute.types", "tablestore.types"},
    "graph": VOCABULARY
    | {"sync", "proofs", "changelog", "engine", "maxcompute", "spark", "declarations.starter"}
    | {"discovery"},
    "definitions": VOCABULARY | {"graph", "sync"},
    "demo": VOCABULARY | {"graph", "sync", "changelog", "local", "referee"},
    "testing": VOCABULARY | {"graph", "sync", "kafka", "changelog", "declarations.pipeline_source", "writing", "local"},
    "reference": VOCABULARY
    | {"declarations", "sync", "sql", "datagen", "formats", "kafka", "tablestore", "maxcompute", "mysql"}
    | {"postgres"},
    "cli": VOCABULARY
    | {"engine", "declarations", "sync", "proofs", "changelog", "local", "demo", "spark", "reference", "referee"}
    | {"graph.stream_events", "graph.job_run", "discovery", "formats", "kafka"},
}
"""Room to the rooms, or single modules of rooms, that it may import anywhere, in functions too."""
MAY_IMPORT_DAGSTER = ("graph", "definitions", "demo.run", "testing")
LIGHT = (
    "core.model", "core.options", "core.destination", "core.source", "core.connector",
    "cli.main", "cli.local", "cli.options",
    "cli.project", "cli.quarantine", "cli.audit", "cli.explain", "engine.explain",
    "sync.audit", "sync.audit_selection",
    "declarations.project", "declarations.connect", "declarations.declared_yaml", "declarations.pipeline",
    "core.plan", "engine.store", "engine.engine",
    "sql.planning.select", "changelog.store", "changelog.refused", "changelog.lake", "formats", "formats.factory",
    "sync.binding", "sync.query_hop", "sync.connectors", "sync.changelog_hop", "sync.destination_hop", "sync.replay",
    "sync.replay_refused", "sync.peek", "sync.send", "sync.shown_rows", "cli.peek", "cli.send",
    "cli.stream", "sync.streaming.loop", "sync.streaming.metrics_page",
    "sync.filesystem_connector", "cli.look_beside", "sync.looks", "sync.standing", "sync.project_hops",
    "cli.run", "cli.discover", "cli.query", "sync.ad_hoc", "sync.relations", "sync.destination_rows",
    "cli.reset", "sync.reset", "changelog.set_aside",
    "cli.erase", "sync.erase", "sync.erasures", "sync.erased_key", "sync.erased_elsewhere", "changelog.erasure",
    "sync.masks", "core.masking",
    "cli.doctor", "cli.verify", "cli.replay", "sync.replay_topic", "sync.replay_into", "sync.following",
    "sync.replay_order",
    "sync.replay_start", "cli.session", "cli.importing", "declarations.importing",
    "sync.checkups.kafka", "sync.checkups.lake", "sync.checkups.machine", "sync.checkups.stores",
    "sync.verify", "sync.one_task_check", "sync.equal_in_tasks", "sync.comparison", "sync.arrow_insert",
    "sync.on_demand", "sync.leased", "core.task_runner",
    "changelog.change_rows", "sql.native", "sync.dead_letters", "sync.transform",
    "kafka.table", "kafka.options", "kafka.source.offsets",
    "kafka.sink.destination", "maxcompute.destination", "maxcompute.table", "tablestore.destination",
    "tablestore.table", "tablestore.connect.destination", "sql.statements", "local.supervisor", "demo.run",
    "referee.verdict", "referee.stores", "referee.topic", "writing.lease", "writing.outcomes",
    "postgres.options", "postgres.connector", "postgres.destination", "postgres.control",
    "mysql.options", "mysql.catalog", "mysql.connection", "mysql.position", "mysql.binlog.stream", "mysql.connector",
    "mysql.table_source", "sync.checkups.databases", "sync.databases",
    "cli.adopt", "cli.prove", "proofs.adopt", "proofs.ends", "proofs.inputs", "proofs.proof",
    "cli.plan", "proofs.database", "proofs.pinned", "proofs.plan",
    "cli.submit_args", "cli.setup", "spark.profiles", "spark.placement",
    "spark.jars", "spark.class_archive", "spark.session", "spark.train_archive",
    "spark.warm_session", "spark.warm_offer", "spark.warm_process", "spark.warm_start",
    "spark.gateway", "spark.spark_work", "spark.private_folder", "cli.warm", "cli.durations",
)  # fmt: skip
"""Driver-side modules: none of HEAVY is loaded by importing them."""
IN_WORKERS = (
    "kafka.source.read_range", "kafka.sink.sink", "kafka.source.source", "maxcompute.reader", "maxcompute.writer",
    "tablestore.reader", "tablestore.task", "tablestore.writer", "tablestore.connect.writer",
    "tablestore.connect.points", "tablestore.connect.frame", "tablestore.connect.compare",
    "tablestore.connect.reading", "engine.tasks", "mysql.binlog.reader", "mysql.snapshot",
    "mysql.landing", "mysql.text_values", "mysql.canonical", "mysql.chunk_sums", "mysql.proof_tasks",
    "changelog.replays", "changelog.summed_in_tasks", "engine.native_insert",
    "changelog.check_task", "changelog.compared_rows", "core.task_runner",
    "postgres.stage", "postgres.reader",
)  # fmt: skip
"""Modules with functions that run in Spark's Python workers."""


@dataclass(frozen=True)
class Import:
    """An import statement; `late` when it stands in a function."""

    module: str
    late: bool


def _name(path: Path) -> str:
    parts = ["upsert_platform", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts).removesuffix(".__init__")


@lru_cache(maxsize=1)
def _names() -> Mapping[str, Path]:
    """Every module of the package. Files are parsed in a test, which one worker runs, not where all are collected."""
    return {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@lru_cache(maxsize=2)
def _modules(*, types: bool = False) -> Mapping[str, tuple[Import, ...]]:
    """Every module of the package with what it imports; with `types` also what it imports for type checkers alone."""
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in _names().items()}
    return {name: tuple(_imports(tree.body, set(trees), late=False, types=types)) for name, tree in trees.items()}


def _imports(body: list[ast.stmt], known: set[str], *, late: bool, types: bool = False) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield Import(inner if inner in known else node.module, late)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _imports([*node.orelse, *(node.body if types else ())], known, late=late, types=types)
        else:
            inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
            for handler in getattr(node, "handlers", ()):
                children += handler.body
            for case in getattr(node, "cases", ()):
                children += case.body
            yield from _imports(children, known, late=inside, types=types)


def _room(module: str) -> str:
    """The first part of a module's name."""
    return module.removeprefix("upsert_platform.").split(".")[0]


def _loaded(module: str, *, late: bool) -> set[str]:
    """All that importing a module loads, own modules and others; with `late`, also what its functions would load."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        own = _modules().get(name, ())
        waiting += [item.module for item in own if late or not item.late]
        if name in _modules() and "." in name:
            waiting.append(name.rpartition(".")[0])
    return found


@pytest.mark.parametrize("module", sorted(_names()))
def test_room_imports_only_what_it_may(module: str) -> None:
    if module == "upsert_platform":
        assert not [item for item in _modules()[module] if item.module.startswith("upsert_platform")]
        return
    room = _room(module)
    allowed = ROOMS[room] | {room}
    for item in _modules()[module]:
        if not item.module.startswith("upsert_platform."):
            continue
        other = item.module.removeprefix("upsert_platform.")
        parts = other.split(".")
        names = {".".join(parts[: index + 1]) for index in range(len(parts))} | {_room(item.module)}
        assert names & allowed, f"{room} may not import {other}"


def test_dagster_is_imported_where_it_may_be() -> None:
    for module, imports in _modules().items():
        name = module.removeprefix("upsert_platform.")
        may = name.startswith(MAY_IMPORT_DAGSTER) or name.endswith((".resource", ".io_manager"))
        for item in imports:
            assert may or not item.module.startswith("dagster"), f"{module} imports {item.module}"


@pytest.mark.parametrize("module", LIGHT)
def test_driver_module_loads_nothing_heavy(module: str) -> None:
    loaded = {name.split(".")[0] for name in _loaded(f"upsert_platform.{module}", late=False)}
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize("module", IN_WORKERS)
def test_worker_module_loads_no_dagster_and_no_room_of_the_driver(module: str) -> None:
    assert f"upsert_platform.{module}" in _modules()
    loaded = _loaded(f"upsert_platform.{module}", late=False)
    assert "dagster" not in {name.split(".")[0] for name in loaded}
    rooms = {_room(name) for name in loaded if name.startswith("upsert_platform.")}
    assert not rooms & {"graph", "sync", "declarations", "sql", "definitions", "cli", "demo", "local", "reference"}


def _loads(modules: tuple[str, ...], wanted: tuple[str, ...]) -> list[str]:
    """Which of `wanted` an interpreter holds after importing modules."""
    names = ", ".join(f"upsert_platform.{name}" for name in modules)
    code = f"import sys, {names}; print(*[name for name in {wanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_driver_modules_together_load_nothing_heavy() -> None:
    assert _loads(LIGHT, HEAVY) == []


def test_worker_modules_together_load_no_dagster() -> None:
    assert _loads(IN_WORKERS, ("dagster", "sqlglot", "rich", "click")) == []


def test_package_is_imported_in_a_moment() -> None:
    code = "import time; t = time.perf_counter(); import upsert_platform; print(time.perf_counter() - t)"
    # The best of three: the machine may be busy with other tests.
    seconds = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    )
    assert seconds < 0.2


def test_processes_that_the_package_starts_take_no_module_from_the_working_folder() -> None:
    """A module `calendar` beside a project would take the place of Python's own."""
    started = [
        (path.name, option)
        for path in PACKAGE.rglob("*.py")
        for option in re.findall(r'sys\.executable, "(-\w)"', path.read_text("utf-8"))
    ]
    assert len(started) > 3
    assert {option for _, option in started} == {"-P"}


def _in_a_loop(uses: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """What is left when all that import nothing but what is settled are taken out, again and again."""
    left = {name: others & uses.keys() - {name} for name, others in uses.items()}
    while settled := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in settled}
    return left


def _uses(name_of: Callable[[str], str | None], *, types: bool = False) -> dict[str, set[str]]:
    """Who imports whom, in functions too, under the names that modules have here; None leaves a module out."""
    uses: dict[str, set[str]] = {}
    for module, imports in _modules(types=types).items():
        if (name := name_of(module)) is not None:
            others = {name_of(item.module) for item in imports if item.module in _modules()}
            uses.setdefault(name, set()).update(other for other in others if other is not None)
    return uses


def test_no_two_rooms_import_each_other() -> None:
    uses = _uses(lambda module: _room(module) if "." in module else None)
    assert set(uses) == set(ROOMS)
    assert not _in_a_loop(uses), "these import each other, some through a third"


def test_no_two_modules_import_each_other() -> None:
    """An import within a function hides a loop, and does not break it."""
    uses = _uses(lambda module: module)
    assert len(uses) > 600
    assert not _in_a_loop(uses), "these import each other, some through a third"


def test_no_modules_name_the_types_of_each_other() -> None:
    """`plan` is one recursive type."""

    def name_of(module: str) -> str:
        plan = "upsert_platform.core.plan"
        return plan if module.startswith(plan) else module

    assert not _in_a_loop(_uses(name_of, types=True))


FOLDERS = sorted({path.parent.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_no_two_folders_beside_each_other_import_each_other(folder: Path) -> None:
    inside = f"{_name(folder / '__init__.py')}."
    beside = {path.parent.name for path in folder.glob("*/__init__.py")}

    def name_of(module: str) -> str | None:
        name = module.removeprefix(inside).split(".")[0]
        return name if module.startswith(inside) and name in beside else None

    assert not _in_a_loop(_uses(name_of)), "these import each other, some through a third"


def _trees(*roots: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in (path for root in roots for path in sorted(root.rglob("*.py"))):
        yield str(path.relative_to(PACKAGE.parent)), ast.parse(path.read_text("utf-8"))


def _texts(*nodes: ast.AST) -> set[object]:
    return {word.value for node in nodes for word in ast.walk(node) if isinstance(word, ast.Constant)}


ROOMS_OF_CONNECTORS = ("kafka", "tablestore", "maxcompute", "postgres", "mysql", "datagen", "local")
"""Where such a word may be the value of an option."""


def test_only_the_list_of_connectors_compares_their_names() -> None:
    names = {name for connector in CONNECTORS.values() for name in (connector.name, connector.endpoint)} - {"none"}
    found = []
    for path, tree in _trees(PACKAGE):
        own = path.split("/")[1] in ROOMS_OF_CONNECTORS
        if path == "upsert_platform/sync/connectors.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                parts, named = [node.left, *node.comparators], names & _texts(node)
            elif isinstance(node, ast.Match):
                parts, named = [node.subject], names & _texts(*(case.pattern for case in node.cases))
            else:
                continue
            asks = any(isinstance(part, ast.Attribute) and part.attr in ("connector", "endpoint") for part in parts)
            if (named and (asks or not own)) or (asks and isinstance(node, ast.Match)):
                found.append(f"{path}:{node.lineno}")
    assert not found


def test_no_isinstance_asks_a_protocol() -> None:
    """Such a class is matched by the names of attributes: rename a method, and the answer is silently another."""
    trees = dict(_trees(PACKAGE))
    protocols = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).startswith("Protocol") for base in node.bases)
    }
    assert "Lease" in protocols
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name | ast.Attribute | ast.FunctionDef):
                name = {ast.Name: "id", ast.Attribute: "attr", ast.FunctionDef: "name"}[type(node)]
                if getattr(node, name) in ("runtime_checkable", "__subclasshook__"):
                    found.append(f"{path}:{node.lineno}")
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
                words = {word.id for word in ast.walk(node.args[1]) if isinstance(word, ast.Name)}
                words |= {word.attr for word in ast.walk(node.args[1]) if isinstance(word, ast.Attribute)}
                found += [f"{path}:{node.lineno}"] if words & protocols else []
    assert not found


def test_no_function_is_named_for_where_it_runs() -> None:
    """A runner decides where a task runs: `core/task_runner.py`, `sync/on_demand.py`."""
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    named = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in _trees(PACKAGE)
        for node in ast.walk(tree)
        if isinstance(node, defined) and node.name.endswith(("_here", "Here"))
    ]
    assert not named


def test_no_step_asks_what_kind_of_spark_it_was_given() -> None:
    """Every step takes the one object that says where work is done: `sync/on_demand.py`."""
    asked = [
        f"{path}:{node.lineno}"
        for path, tree in _trees(PACKAGE)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node).startswith(("isinstance(spark,", "isinstance(self._spark,"))
    ]
    assert not asked


def test_no_line_is_excused_for_a_name_that_pyspark_is_imported_by() -> None:
    excused = re.compile(r"noqa:[^#]*\bN812\b")
    roots = (PACKAGE, Path(__file__).parent)
    files = [path for root in roots for path in root.rglob("*.py") if excused.search(path.read_text("utf-8"))]
    assert not files


def test_packages_are_those_of_the_architecture() -> None:
    table = (PACKAGE.parent / "ARCHITECTURE.md").read_text("utf-8").partition("## Packages")[2].partition("\n## ")[0]
    told = {word.strip("`/") for line in table.splitlines() if line.startswith("| `") for word in _first_cell(line)}
    assert {_room(name) for name in _modules() if name != "upsert_platform"} == told


def test_files_that_the_architecture_names_exist() -> None:
    """A file in back quotes is there: below the root, or below the package."""
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text("utf-8")
    named = re.findall(r"`((?:\w+/)+\w+\.py|upsert_platform/[\w/]+)`", text)
    gone = {name for name in named if not (PACKAGE.parent / name).exists() and not (PACKAGE / name).exists()}
    opened = text.partition("## To change it, open it")[2].partition("\n## ")[0]
    assert sum(line.startswith("| ") and "`" in line for line in opened.splitlines()) >= 20
    assert not gone


def _first_cell(line: str) -> list[str]:
    return [word.strip() for word in line.split("|")[1].split(",")]


def test_a_step_asks_neither_where_it_runs_nor_what_its_rows_are_made_of() -> None:
    """Runners and `RowsOfTask` decide that; a step written twice would apply its rules twice."""
    asks = re.compile(r"isinstance\(spark, |DataFrame \| pa\.Table|pa\.Table \| DataFrame|def \w+_here\(")
    asking = [path.name for path in PACKAGE.rglob("*.py") if asks.search(path.read_text("utf-8"))]
    assert not asking


def test_tests_are_collected_with_the_packages_of_the_lock() -> None:
    """What `make test-systems` installs besides is imported inside tests: `make test` reads every file without it."""
    pins = (PACKAGE.parent / "requirements.lock").read_text("utf-8")
    locked = {_normal(name) for name in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[\w,-]+\])?==", pins, re.MULTILINE)}
    ours = {"upsert_platform", "upsert_platform_tests"}
    distributions = packages_distributions()
    missing = [
        f"{path}: {name}"
        for path, tree in _trees(Path(__file__).parent)
        for name in _roots(tree)
        if name not in sys.stdlib_module_names and name not in ours
        if not locked & {_normal(found) for found in distributions.get(name, [])}
    ]
    assert not missing


def _roots(tree: ast.Module) -> list[str]:
    """What a file imports while it is read, without what its functions import."""
    found = _imports(tree.body, set(), late=False)
    return sorted({item.module.partition(".")[0] for item in found if not item.late})


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
