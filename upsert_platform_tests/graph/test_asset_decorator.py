"""`@upsert_assets`: assets of a project in one step of the user's own, with its checks and its sensor."""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import upsert_platform
from upsert_platform.core.errors import DeclarationError
from upsert_platform.graph.asset_decorator import UpsertProject, build_upsert_checks, build_upsert_sensor, upsert_assets
from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.graph.translator import TranslatorData, UpsertTranslator
from upsert_platform.sync.stand_ins import PLACES
from upsert_platform.testing.memory import MemorySystems
from upsert_platform.testing.platform import LastingSpark, holding
from upsert_platform_tests.graph.test_affected import SQL


class Prefixed(UpsertTranslator):
    def get_asset_key(self, data: TranslatorData) -> dg.AssetKey:
        return super().get_asset_key(data).with_prefix("shop")


@pytest.fixture
def shop(tmp_path: Path) -> UpsertProject:
    (tmp_path / "shop.sql").write_text(SQL, "utf-8")
    platform = holding(MemorySystems())(
        home=str(tmp_path / "lake"),
        kafka=KafkaResource(**PLACES["kafka"]),
        tablestore=TablestoreResource(**PLACES["tablestore"]),
        maxcompute=MaxComputeResource(**PLACES["maxcompute"]),
    )
    return UpsertProject(tmp_path, platform=platform, spark=LastingSpark(local_rows=10_000), translator=Prefixed())


def send(shop: UpsertProject, topic: str, *ids: int) -> None:
    topics = shop.platform.sound().sources["users"].topics  # type: ignore[attr-defined]
    for number in ids:
        topics.named(topic).append(b'{"id":%d}' % number, b'{"id":%d,"name":"a"}' % number)


def test_a_step_of_selected_assets_writes_them_in_order_and_runs_code_around_them(shop: UpsertProject) -> None:
    seen: list[str] = []

    @upsert_assets(
        project=shop, select='key:"shop/changelogs/users" or key:"shop/queries/totals" or key:"shop/tables/*"'
    )
    def tables(context: dg.AssetExecutionContext, platform: PlatformResource) -> Any:
        seen.append("before")
        yield from shop.sync(context, platform)
        seen.append("after")

    rest = [item for item in shop.assets() if not item.keys & tables.keys]
    made = dg.Definitions(
        assets=[*shop.topics(), *rest, tables],
        asset_checks=build_upsert_checks(shop),
        sensors=[build_upsert_sensor(shop, [*rest, tables])],
        resources=shop.resources(),
    )
    dg.Definitions.validate_loadable(made)
    send(shop, "users", 1, 2)
    job = made.resolve_implicit_global_asset_job_def()
    with dg.instance_for_test() as instance:
        names = ("changelogs/users", "queries/totals", "tables/copies")
        wanted = [dg.AssetKey(["shop", *name.split("/")]) for name in names]
        done = job.execute_in_process(instance=instance, asset_selection=wanted, raise_on_error=False)
        assert done.success
        assert seen == ["before", "after"]
        order = [event.asset_key.path[1:] for event in done.get_asset_materialization_events() if event.asset_key]
        assert order == [["changelogs", "users"], ["queries", "totals"], ["tables", "copies"]]
        judged = {item.check_name: item.passed for item in done.get_asset_check_evaluations()}
        assert {name for name, passed in judged.items() if not passed} == {"equals_source", "equals_topic"}  # left out
        held = shop.platform._systems.tables["copies"]  # type: ignore[attr-defined]
        assert sorted(key for (key,) in held.rows) == [1, 2]

        send(shop, "users", 3)
        sensor = made.resolve_sensor_def("new_offsets")
        with dg.build_sensor_context(
            instance=instance, definitions=made, resources={"platform": shop.platform}
        ) as context:
            (request,) = sensor.evaluate_tick(context).run_requests or ()
        assert {key.path[-1] for key in request.asset_selection or ()} == {"users", "totals", "copies"}

        users = [item for item in shop.assets() if dg.AssetKey(["shop", "changelogs", "users"]) in item.keys]
        alone = build_upsert_sensor(shop, users)
        send(shop, "orders", 1)
        with dg.build_sensor_context(
            instance=instance, definitions=made, resources={"platform": shop.platform}
        ) as context:
            (request,) = alone.evaluate_tick(context).run_requests or ()
        assert request.asset_selection == [dg.AssetKey(["shop", "changelogs", "users"])]
        assert {key.asset_key.path[-1] for key in request.asset_check_keys or ()} == {"users"}


def test_nothing_selected_is_refused_with_what_there_is(shop: UpsertProject) -> None:
    with pytest.raises(DeclarationError, match=r"names no asset; there are: .*shop/tables/copies"):
        upsert_assets(project=shop, select="group:nothing")


def test_what_is_left_out_is_left_out(shop: UpsertProject) -> None:
    @upsert_assets(project=shop, select="group:tables", exclude='key:"shop/tables/last"', pool="stores")
    def tables(context: dg.AssetExecutionContext, platform: PlatformResource) -> Any:
        yield from shop.sync(context, platform)

    assert {key.path[-1] for key in tables.keys} == {"copies", "totals", "passed_on"}
    assert tables.op.pool == "stores"


def test_an_asset_whose_declaration_has_errors_is_refused_by_its_reason(shop: UpsertProject, tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(
        SQL.replace("'freshness.max-delay' = '1 h'", "\n  'no.such.option' = '1'"), "utf-8"
    )
    wrong = UpsertProject(tmp_path, platform=shop.platform)
    with pytest.raises(DeclarationError, match=r"no\.such\.option"):
        upsert_assets(project=wrong, select="group:tables")


def test_names_of_the_package_are_those_of_the_modules() -> None:
    assert upsert_platform.upsert_assets is upsert_assets
    assert upsert_platform.UpsertProject is UpsertProject
    assert set(upsert_platform.__all__) <= set(dir(upsert_platform))


def test_the_example_of_the_page_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(upsert_platform.__file__).parents[1] / "docs" / "running.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (code,) = [block for block in blocks if "upsert_assets" in block]
    (tmp_path / "shop").mkdir()
    sql = SQL.split("CREATE TABLE totals")[0] + "INSERT INTO copies SELECT * FROM users;"
    (tmp_path / "shop" / "shop.sql").write_text(sql, "utf-8")
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "running.md", "exec"), found)
    dg.Definitions.validate_loadable(found["defs"])
    assert {key.path[-1] for key in found["tables"].keys} == {"users", "copies"}
