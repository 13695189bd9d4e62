"""The options reference: every option is in it, with a sentence and an origin, and it fits a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from upsert_platform.cli import options as cli_options
from upsert_platform.cli.main import main
from upsert_platform.core.options import option_fields
from upsert_platform.datagen.options import DatagenSettings, FakerSettings
from upsert_platform.declarations import connect_options
from upsert_platform.formats import FORMATS
from upsert_platform.kafka import properties
from upsert_platform.kafka.options import KafkaSettings, UpsertKafkaSettings
from upsert_platform.maxcompute.options import MaxComputeSettings
from upsert_platform.maxcompute.replaced import REPLACED, REPLACED_BY_MAXSTORAGE
from upsert_platform.reference.markdown import markdown, sections
from upsert_platform.tablestore.options import TablestoreSettings

ROOT = Path(__file__).parents[1]


def _text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_reference_file_is_current() -> None:
    assert _text("docs/options.md") == markdown(), "write it anew: python -m upsert_platform.reference.markdown"


def test_errors_page_is_current() -> None:
    from upsert_platform.reference.errors import errors_page

    assert _text("docs/errors.md") == errors_page(), "write it anew: python -m upsert_platform.reference.markdown"


MODELS = {
    "upsert-kafka": UpsertKafkaSettings,
    "kafka": KafkaSettings,
    "tablestore": TablestoreSettings,
    "maxcompute": MaxComputeSettings,
    "faker": FakerSettings,
    "datagen": DatagenSettings,
    **{name: found.settings for name, found in FORMATS.items()},
}


@pytest.mark.parametrize("name", MODELS)
def test_reference_has_every_option_with_a_sentence_and_an_origin(name: str) -> None:
    rows = {row.name: row for row in sections()[name].rows}
    assert set(option_fields(MODELS[name])) <= set(rows)
    origins = {"flink", "alibaba", "volcengine", "tencent", "tablestore", "maxcompute", "confluent", "platform"}
    for option in option_fields(MODELS[name]):
        assert rows[option].meaning.endswith(".")
        assert set(rows[option].third.replace(" ", "").split(",")) <= origins, option


VENDOR_PAGES = {
    "alibaba": (
        "upsert-kafka",
        "connector, properties.bootstrap.servers, topic, key.format, key.fields, key.fields-prefix, value.format,"
        " value.fields-include, sink.parallelism, sink.buffer-flush.max-rows, sink.buffer-flush.interval,"
        " sink.delivery-guarantee, sink.add-tableId-to-header-enabled, aliyun.kafka.accessKeyId,"
        " aliyun.kafka.accessKeySecret, aliyun.kafka.instanceId, aliyun.kafka.endpoint, aliyun.kafka.regionId",
    ),
    "volcengine": (
        "upsert-kafka",
        "connector, properties.bootstrap.servers, topic, key.format, key.fields-prefix, value.format,"
        " value.fields-include, sink.parallelism",
    ),
    "tencent": (
        "upsert-kafka",
        "connector, properties.bootstrap.servers, topic, key.format, key.fields, key.fields-prefix, value.format,"
        " value.fields-include, scan.startup.mode, sink.parallelism, sink.buffer-flush.max-rows,"
        " sink.buffer-flush.interval",
    ),
}
"""What the pages of vendors list, or use in an example."""


@pytest.mark.parametrize("vendor", VENDOR_PAGES)
def test_reference_tells_which_vendors_document_an_option(vendor: str) -> None:
    section, listed = VENDOR_PAGES[vendor]
    found = {row.name for row in sections()[section].rows if vendor in row.third.split(", ")}
    assert found == set(listed.split(", "))


def test_reference_tells_options_of_kafka_connect_from_those_of_the_connector() -> None:
    origin = {row.name: row.third for row in sections()["kafka-connect"].rows}
    assert {origin[name] for name in ("tasks.max", "transforms", "errors.tolerance", "consumer.override.*")} == {
        "kafka-connect"
    }
    assert {origin[name] for name in ("primarykey.mode", "insert.mode", "bucket.count")} == {"tablestore"}


def test_reference_marks_what_has_no_effect_or_is_refused() -> None:
    def marked(section: str, status: str) -> set[str]:
        return {row.name for row in sections()[section].rows if row.status == status}

    assert marked("maxcompute", "no effect") == set(REPLACED)
    meaning = {row.name: row.text for row in sections()["maxcompute"].rows}
    assert "Used with `sink.coordinator.enable` = `false`" in meaning["insert.commit.thread-num"]
    assert all("Used with `write.api` = `tunnel`" in meaning[name] for name in REPLACED_BY_MAXSTORAGE)
    assert marked("upsert-kafka", "refused") == {"sink.partitioner"}
    assert marked("properties", "no effect") == {*properties.OWNED, *properties.JVM_ONLY}
    assert marked("kafka-connect", "refused") == set(connect_options.REFUSED)


def test_reference_tells_what_java_properties_become() -> None:
    rows = {row.name: row.second for row in sections()["properties"].rows}
    assert set(rows) | {"bootstrap.servers"} == {
        *properties.COMMON, *properties.CONSUMER, *properties.PRODUCER, *properties.RENAMED,
        *properties.JVM_ONLY, *properties.OWNED, *properties.HANDLED,
    }  # fmt: skip
    for java, native in properties.RENAMED.items():
        client, problems = properties.read_properties({java: "1"})
        assert not problems
        assert rows[java] == native
        assert native in {**client.common, **client.consumer, **client.producer}


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("name", sections())
def test_options_fit_the_terminal_and_nothing_is_cut(name: str, width: int) -> None:
    output = StringIO()
    cli_options._show(Console(width=width, file=output, highlight=False), sections()[name])
    shown = output.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    letters = re.sub(r"\s", "", shown)
    for row in sections()[name].rows:
        words = [word for word in cli_options._plain(row.text).split() if len(word) < width // 5]
        assert all(word in letters for word in words), row.name


def test_options_of_an_unknown_connector_name_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["options", "tablestor"])
    assert ended.value.code == 2
    assert "did you mean 'tablestore'" in capsys.readouterr().err


def test_defaults_are_told_in_the_units_of_the_option() -> None:
    rows: Mapping[str, str] = {row.name: row.second for row in sections()["upsert-kafka"].rows}
    assert rows["scan.buffer-bytes"] == "192 mb"
    assert rows["batch.max-bytes"] == "2 gb"
    assert {row.name: row.second for row in sections()["tablestore"].rows}["request.timeout"] == "10 s"
