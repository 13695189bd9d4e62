"""Whatever tables are called, the code location loads, and each has assets, steps and checks of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform import testing
from upsert_platform.graph.translator import TranslatorData, UpsertTranslator
from upsert_platform_tests.campaign import first_of

pytestmark = pytest.mark.whole_runs

TABLE = """
CREATE TABLE `{name}` (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '${{BROKERS}}',
  'key.format' = 'json', 'value.format' = 'json');
"""
COPY = """
CREATE TABLE `{name}` (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${{STORE}}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${{ID}}', 'tablestore.access.key.secret' = '${{SECRET}}', 'table.name' = '{stored}');
INSERT INTO `{name}` SELECT * FROM `{read}`;
"""
JOIN = """
CREATE TABLE `{name}` (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${{STORE}}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${{ID}}', 'tablestore.access.key.secret' = '${{SECRET}}', 'table.name' = 'joined');
INSERT INTO `{name}` SELECT a.id, b.name FROM `{left}` AS a JOIN `{right}` AS b ON a.id = b.id;
"""


class OurNames(UpsertTranslator):
    def get_asset_key(self, data: TranslatorData) -> dg.AssetKey:
        return super().get_asset_key(data).with_prefix("shop")


def write(folder: Path, pairs: Sequence[tuple[str, str]], joined: str = "") -> None:
    text = ""
    for number, (read, written) in enumerate(pairs):
        text += TABLE.format(name=read, topic=f"topic{'-_.'[number % 3]}{number // 3}")
        text += COPY.format(name=written, stored=f"stored_{number}", read=read)
    if joined:
        text += JOIN.format(name=joined, left=pairs[0][0], right=pairs[1][0])
    (folder / "shop.sql").write_text(text, "utf-8")


@pytest.mark.parametrize("translator", first_of([OurNames(), None], every=2))
@pytest.mark.parametrize(
    ("pairs", "joined"),
    [
        ([("täglich", "täglich kopiert"), ("订单", "订单.副本")], "überall"),
        ([("c-1", "d-1"), ("c_1", "d_1"), ("c.1", "d.1")], "beide"),
    ],
    ids=["letters", "signs"],
)
def test_every_table_is_brought_up_to_date(
    pairs: list[tuple[str, str]], joined: str, translator: UpsertTranslator | None, tmp_path: Path
) -> None:
    write(tmp_path, pairs, joined)
    with testing.project(tmp_path, translator=translator) as shop:
        for number, (read, _) in enumerate(pairs):
            shop.send(read, [{"id": 1, "name": f"of {number}"}])
        done = shop.sync()
        # Two assets of each pair, and a query with its table.
        assert len(set(done.materialized)) == 2 * len(pairs) + 2
        assert all(done.checks.values())
        for number, (_, written) in enumerate(pairs):
            assert [row["name"] for row in shop.rows(written)] == [f"of {number}"]
        assert [row["name"] for row in shop.rows(joined)] == ["of 1"]
        assert shop.sync().materialized == ()
        for job in ("compact", "verify", "watch"):
            assert shop.run(job).success
        shop.send(pairs[0][0], [{"id": 2, "name": "more"}])
        requested = look(shop)
        assert len(requested) == 4, "of one pair, and of the query with its table"
        assert all(all(part.isascii() for part in key.path) for key in requested)


def look(shop: testing.ProjectUnderTest) -> set[dg.AssetKey]:
    found = shop.definitions
    resources: dict[str, Any] = {"platform": shop.platform}
    with dg.build_sensor_context(instance=shop.instance, definitions=found, resources=resources) as context:
        result = found.resolve_sensor_def("new_offsets").evaluate_tick(context)
    return {key for request in result.run_requests for key in request.asset_selection}


def test_names_that_are_alone_keep_their_keys_and_steps(tmp_path: Path) -> None:
    write(tmp_path, [("a-1", "b 1"), ("c.1", "d_1")])
    with testing.project(tmp_path) as shop:
        found = shop.definitions.resolve_job_def("sync")
        keys = {key.to_user_string() for key in found.asset_layer.executable_asset_keys}
        assert keys == {"changelogs/a-1", "tables/b_1", "changelogs/c.1", "tables/d_1"}
        steps = {node.name for node in found.graph.nodes}
        assert {"changelogs__a_1", "tables__b_1", "changelogs__c_1", "tables__d_1"} <= steps


def test_of_two_names_the_one_that_is_written_as_its_step_stays(tmp_path: Path) -> None:
    write(tmp_path, [("c-1", "d"), ("c_1", "e")])
    with testing.project(tmp_path) as shop:
        keys = {key.to_user_string() for key in shop.definitions.resolve_asset_graph().materializable_asset_keys}
        (other,) = keys - {"changelogs/c_1", "tables/d", "tables/e"}
        assert other.startswith("changelogs/c-1_")
