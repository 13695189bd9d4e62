"""Options and rules of the declaration, from sections 1.1 to 1.6 of the connector's options."""

from __future__ import annotations

import pytest

from upsert_platform.core.options import option_fields
from upsert_platform.maxcompute.choices import SinkOperation
from upsert_platform.maxcompute.options import MaxComputeSettings
from upsert_platform.maxcompute.replaced import REPLACED, REPLACED_BY_COORDINATOR, REPLACED_BY_MAXSTORAGE
from upsert_platform.maxcompute.table import MaxComputeTable, read_maxcompute_table
from upsert_platform_tests.maxcompute.declare import BASE, declare

UPSERT = {"sink.operation": "upsert"}


def read(**arguments: object) -> MaxComputeTable:
    table, problems = read_maxcompute_table(declare(**arguments))  # type: ignore[arg-type]
    assert table is not None, problems
    return table


def errors(**arguments: object) -> list[str]:
    table, problems = read_maxcompute_table(declare(**arguments))  # type: ignore[arg-type]
    found = [problem.message for problem in problems if problem.severity == "error"]
    assert (table is None) == bool(found)
    return found


def warnings(**arguments: object) -> list[str]:
    table, problems = read_maxcompute_table(declare(**arguments))  # type: ignore[arg-type]
    assert table is not None, problems
    return [problem.message for problem in problems if problem.severity == "warning"]


def test_defaults_are_those_of_the_documentation() -> None:
    settings = read().settings
    fields = option_fields(MaxComputeSettings)
    expected = {
        "odps.namespace.schema": False,
        "sink.operation": SinkOperation.INSERT,
        "sink.parallelism": None,
        "sink.meta.cache.time": 400,
        "sink.meta.cache.expire.time": 1200,
        "sink.coordinator.enable": True,
        "sink.partition": None,
        "sink.partition.default-value": "__DEFAULT_PARTITION__",
        "sink.dynamic-partition.limit": 100,
        "sink.group-partition.enable": False,
        "sink.partition.assigner.class": None,
        "sink.file-cached.enable": False,
        "sink.file-cached.tmp.dirs": "./local",
        "sink.file-cached.writer.num": 16,
        "sink.bucket.check-interval": 60_000,
        "sink.file-cached.rolling.max-size": 16 * 1024**2,
        "sink.file-cached.memory": 64 * 1024**2,
        "sink.file-cached.memory.segment-size": 128 * 1024,
        "sink.file-cached.flush.always": True,
        "sink.file-cached.write.max-retries": 3,
        "upsert.writer.max-retries": 3,
        "upsert.writer.buffer-size": 64 * 1024**2,
        "upsert.writer.bucket.buffer-size": 1024**2,
        "upsert.write.bucket.num": None,
        "upsert.write.slot-num": 1,
        "upsert.commit.max-retries": 3,
        "upsert.commit.thread-num": 16,
        "upsert.commit.timeout": 600,
        "upsert.major-compact.enable": False,
        "upsert.major-compact.min-commits": 100,
        "upsert.flush.concurrent": 2,
        "insert.commit.thread-num": 16,
        "insert.arrow-writer.enable": False,
        "insert.arrow-writer.batch-size": 512,
        "insert.arrow-writer.flush-interval": 100_000,
        "insert.writer.buffer-size": 64 * 1024**2,
    }
    assert {name: fields[name].default for name in expected} == expected
    assert settings.body_bytes == 16 * 1024**2


def test_1_6_1_all_missing_required_options_are_named_at_once() -> None:
    required = ["odps.project.name", "odps.access.id", "odps.access.key", "odps.end.point", "table.name"]
    found = errors(options=dict.fromkeys(required))
    for name in required:
        assert f"table 'users': required option '{name}' is missing" in found


@pytest.mark.parametrize("present", ["odps.access.id", "odps.access.key"])
def test_1_6_2_id_without_key_is_refused(present: str) -> None:
    other = ({"odps.access.id", "odps.access.key"} - {present}).pop()
    assert errors(options={other: None}) == [f"table 'users': required option '{other}' is missing"]


def test_71_missing_option_lone_access_id_and_negative_retries_are_three_errors() -> None:
    assert errors(options={"odps.access.key": None, "table.name": None, "upsert.writer.max-retries": "-1"}) == [
        "table 'users': required option 'odps.access.key' is missing",
        "table 'users': required option 'table.name' is missing",
        "table 'users': option 'upsert.writer.max-retries' must be greater than or equal to 0",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sink.file-cached.write.max-retries", "-1"),
        ("upsert.writer.max-retries", "-1"),
        ("upsert.commit.max-retries", "-2"),
        ("sink.parallelism", "0"),
        ("sink.parallelism", "many"),
        ("sink.operation", "replace"),
        ("sink.dynamic-partition.limit", "0"),
        ("sink.dynamic-partition.limit", "60001"),
        ("sink.partition.default-value", ""),
        ("sink.file-cached.writer.num", "0"),
        ("upsert.commit.thread-num", "0"),
        ("insert.commit.thread-num", "-1"),
        ("sink.bucket.check-interval", "0"),
        ("insert.arrow-writer.flush-interval", "1 s"),
        ("insert.arrow-writer.batch-size", "0"),
        ("upsert.writer.buffer-size", "0"),
        ("upsert.writer.buffer-size", "64 x"),
        ("upsert.write.bucket.num", "0"),
        ("upsert.write.bucket.num", "4097"),
        ("upsert.write.slot-num", "0"),
        ("upsert.flush.concurrent", "0"),
        ("upsert.commit.timeout", "0"),
        ("upsert.major-compact.min-commits", "0"),
        ("upsert.major-compact.enable", "maybe"),
        ("odps.end.point", "service.cn-beijing"),
        ("odps.end.point", "http://me:pw@host/api"),
        ("odps.project.name", "1p"),
        ("sink.partition.assigner.class", "com.example.Assigner"),
        ("sink.partition.assigner.class", "two words:f"),
        ("sink.partition.assigner.format", "yyyy-ww"),
        ("sink.partition.assigner.format", "yyyy/MM"),
        ("sink.partition.assigner.format", "yyyy'"),
        ("sink.partition.assigner.time-zone", "Mars/Base"),
        ("schema.change.behavior", "lenient"),
        ("acid.data.retain.hours", "169"),
        ("on-error", "ignore"),
        ("write.compression", "gzip"),
        ("write.body-size", "1 kb"),
        ("request.timeout", "0 s"),
        ("table.name", "a.b.c.d"),
        ("connector", "odps"),
    ],
)
def test_values_out_of_range_name_the_option(name: str, value: str) -> None:
    found = errors(options={name: value})
    assert len(found) == 1
    assert name in found[0]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"sink.file-cached.memory": "64 kb", "sink.file-cached.memory.segment-size": "65 kb"}, "segment-size"),
        (
            {"upsert.writer.buffer-size": "512 kb", "upsert.writer.bucket.buffer-size": "513 kb"},
            "upsert.writer.bucket.buffer-size",
        ),
    ],
)
def test_sizes_that_contain_others_are_larger(options: dict[str, str], rule: str) -> None:
    assert [rule in message for message in errors(options=options)] == [True]


def test_a_size_that_nobody_gave_follows_the_one_that_contains_it() -> None:
    settings = read(options={"upsert.writer.buffer-size": "512 kb", "sink.file-cached.memory": "64 kb"}).settings
    assert (settings.bucket_bytes, settings.writer_buffer) == (512 << 10, 512 << 10)
    (found,) = errors(options={"upsert.writer.bucket.buffer-size": "128 m"})
    assert "is at most 'upsert.writer.buffer-size' (67108864 bytes)" in found


@pytest.mark.parametrize(
    "name", ["upsert.commit.thread-num", "insert.commit.thread-num", "sink.file-cached.writer.num"]
)
def test_numbers_of_threads_have_no_upper_bound(name: str) -> None:
    assert errors(options={name: "200"}) == []


@pytest.mark.parametrize(
    ("key", "options", "told"),
    [
        (["id"], {}, True),
        (["id"], {"sink.partition.move-rows": "true"}, False),
        (["id"], {"sink.partition.move-rows": "false"}, False),
        (["id", "ds"], {}, False),
        (["id"], {"sink.partition": "ds=1"}, False),
        (["id"], {"sink.operation": "insert"}, False),
    ],
)
def test_rows_of_a_key_in_several_partitions_are_warned_of_until_the_option_is_given(
    key: list[str], options: dict[str, str], told: bool
) -> None:
    values = {"sink.operation": "upsert", **options}
    declared = declare({"id": "BIGINT", "ds": "STRING"}, key=key, partitioned_by=["ds"], options=values)
    table, problems = read_maxcompute_table(declared)
    assert table is not None
    assert any("a key has one row per partition" in problem.message for problem in problems) is told
    assert (table.undeclared_moves is not None) is told


@pytest.mark.parametrize(("text", "size"), [("64 m", 64 << 20), ("16 M", 16 << 20), ("128 KB", 128 << 10)])
def test_sizes_read_as_the_documentation_writes_them(text: str, size: int) -> None:
    options = {"upsert.writer.bucket.buffer-size": "1 kb", "upsert.writer.buffer-size": text}
    assert read(options=options).settings.writer_buffer == size


IDLE = REPLACED | REPLACED_BY_MAXSTORAGE | REPLACED_BY_COORDINATOR


@pytest.mark.parametrize("name", sorted(IDLE))
def test_options_without_work_warn_and_say_what_replaces_them(name: str) -> None:
    value = "true" if name.endswith(("enable", "always")) else "16"
    if name.endswith(("-size", ".memory")) and "arrow" not in name:
        value = "128 kb" if name.endswith("segment-size") else "1 mb"
    found = warnings(options={name: value})
    assert len(found) == 1
    assert name in found[0]
    assert IDLE[name] in found[0]


def test_options_that_have_work_do_not_warn() -> None:
    assert warnings(options={"sink.coordinator.enable": "false", "insert.commit.thread-num": "2"}) == []
    tunnel = {**UPSERT, "write.api": "tunnel", **dict.fromkeys(REPLACED_BY_MAXSTORAGE, "16")}
    assert warnings(key=["id"], options=tunnel) == []


@pytest.mark.parametrize(
    ("endpoint", "declared", "seconds"),
    [
        ("http://service.cn-beijing.maxcompute.aliyun.com/api", None, 60),
        ("http://service.cn-beijing.maxcompute.aliyun.com/api", "0 s", 0),
        ("http://127.0.0.1:8080", None, 0),
        ("http://localhost:8080", "5 min", 300),
    ],
)
def test_commits_are_a_minute_apart_but_on_this_machine(endpoint: str, declared: str | None, seconds: int) -> None:
    options = {"odps.end.point": endpoint, "commit.min-interval": declared}
    assert read(options=options).settings.least_interval.total_seconds() == seconds


def test_secrets_are_never_shown() -> None:
    table = read(options={"odps.sts.token": "a-sts-token"})
    shown = f"{table!r} {table.settings!r} {table.settings.model_dump_json()}"
    for secret in ("an-id", "a-secret-key", "a-sts-token"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("text", "three_tier", "expected"),
    [
        ("t", False, "p.t"),
        ("q.t", False, "q.t"),
        ("t", True, "p.default.t"),
        ("s.t", True, "p.s.t"),
        ("q.s.t", True, "q.s.t"),
        ("q.s.t", False, "q.s.t"),
    ],
)
def test_table_name_has_one_to_three_parts(text: str, three_tier: bool, expected: str) -> None:
    options = {"table.name": text, "odps.namespace.schema": str(three_tier).lower()}
    assert str(read(options=options).target) == expected


def test_1_6_upsert_needs_a_primary_key() -> None:
    assert ["needs PRIMARY KEY" in message for message in errors(options=UPSERT)] == [True]


def test_1_6_5_uneven_buckets_warn_only() -> None:
    options = {**UPSERT, "upsert.write.bucket.num": "16", "sink.parallelism": "3"}
    assert ["not a multiple" in message for message in warnings(key=["id"], options=options)] == [True]
    assert warnings(key=["id"], options={**options, "sink.parallelism": "4"}) == []


def test_without_coordinator_upsert_is_refused_and_tasks_of_insert_have_sessions() -> None:
    options = {"sink.coordinator.enable": "false"}
    assert warnings(options={**options, "insert.commit.thread-num": "2"}) == []
    assert read(options=options).session_per_task
    assert not read().session_per_task
    assert len(errors(key=["id"], options={**UPSERT, **options})) == 1


def test_64_69_dynamic_before_static_and_unknown_partition_columns_are_refused() -> None:
    """Rule 1.6.7."""
    columns = {"id": "BIGINT", "author": "STRING", "date": "STRING"}
    partitioned = {"columns": columns, "partitioned_by": ["author", "date"]}
    assert read(**partitioned, options={"sink.partition": "author=me"}).partitions.dynamic == ("date",)
    assert "precede" in errors(**partitioned, options={"sink.partition": "date=20240101"})[0]
    assert "not a column of PARTITIONED BY" in errors(**partitioned, options={"sink.partition": "hour=1"})[0]


@pytest.mark.parametrize(
    "text", ["dd=01,hh=02", "dd='01', hh=\"02\"", " dd = 01 / hh = 02 ", "`dd`=01,HH=02"], ids=range(4)
)
def test_1_6_11_partition_specs_are_normalised(text: str) -> None:
    plan = read(options={"sink.partition": text}).partitions
    assert plan.static_text == "dd=01,hh=02"
    assert plan.dynamic == ()


@pytest.mark.parametrize("text", ["dd", "dd=", "=1", "dd=1,dd=2", "dd=a'b'c"])
def test_75_bad_partition_specs_are_refused(text: str) -> None:
    assert "sink.partition" in errors(options={"sink.partition": text})[0]


def test_partition_limit_above_the_default_warns() -> None:
    assert ["small files" in text for text in warnings(options={"sink.dynamic-partition.limit": "101"})] == [True]


def test_columns_that_differ_in_case_only_are_refused() -> None:
    assert "ignores case" in errors(columns={"id": "BIGINT", "ID": "STRING"})[0]


@pytest.mark.parametrize("text", ["DECIMAL(38, 19)", "CHAR(256)", "ROW<a DECIMAL(38, 20)>"])
def test_types_that_do_not_fit_are_refused_by_column(text: str) -> None:
    assert "column 'x'" in errors(columns={"id": "BIGINT", "x": text})[0]


@pytest.mark.parametrize("text", ["ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>"])
def test_keys_of_nested_types_are_refused(text: str) -> None:
    assert "PRIMARY KEY" in errors(columns={"k": text, "v": "INT"}, key=["k"], options=UPSERT)[0]


def test_partitions_of_a_delete_follow_from_its_key_or_not() -> None:
    columns = {"id": "BIGINT", "ds": "STRING", "v": "INT"}
    inside = read(columns=columns, key=["id", "ds"], partitioned_by=["ds"], options=UPSERT)
    outside = read(columns=columns, key=["id"], partitioned_by=["ds"], options=UPSERT)
    fixed = read(columns=columns, key=["id"], partitioned_by=["ds"], options={**UPSERT, "sink.partition": "ds=1"})
    assert [table.partitions_follow_key for table in (inside, outside, fixed)] == [True, False, True]


def test_rows_that_never_move_need_no_option_for_it() -> None:
    columns = {"id": "BIGINT", "ds": "STRING", "v": "INT"}
    off = {"sink.partition.move-rows": "false"}
    partitioned = {"columns": columns, "partitioned_by": ["ds"]}
    outside = read(**partitioned, key=["id"], options={**UPSERT, **off})
    assert outside.places == ("ds",)
    assert warnings(**partitioned, key=["id"], options={**UPSERT, **off}) == []
    assert read(**partitioned, key=["id"], options=UPSERT).places == ("ds",)
    moves = {"sink.partition.move-rows": "true"}
    assert read(**partitioned, key=["id"], options={**UPSERT, **moves}).places == ()
    inside = warnings(**partitioned, key=["id", "ds"], options={**UPSERT, **moves})
    appended = warnings(**partitioned, options=moves)
    assert ["has no effect" in found[0] for found in (inside, appended)] == [True, True]


def test_every_documented_example_option_is_known() -> None:
    names = set(option_fields(MaxComputeSettings))
    assert set(BASE) <= names
