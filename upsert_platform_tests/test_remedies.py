"""Every option that a message names as a remedy has a test that holds its effect."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import upsert_platform

PACKAGE = Path(upsert_platform.__file__).parent
TESTS = Path(__file__).parent
_NAME = r"[a-z][A-Za-z0-9]*(?:[.-][A-Za-z0-9-]+)+"
_REMEDY = re.compile(
    rf"(?:[Ss]et|[Uu]se|[Rr]aise|[Ll]ower|[Gg]ive|needs)\s+(?:option\s+)?'({_NAME})'(?:\s*=\s*'([^'{{}}]*)')?"
    rf"|'({_NAME})' = '([^'{{}}]*)' (?:keeps|deletes|carries|gives|reads|goes|cuts)"
)
DESTINATION = "kafka/sink/test_destination.py::"
CASES = {
    "aliyun.kafka.topic.storage = local": "kafka/test_apsara.py::test_a_topic_is_asked_for_with_its_properties",
    "auto.create = false": f"{DESTINATION}test_created_topic_is_compacted_and_auto_create_can_be_off",
    "auto.create = true": f"{DESTINATION}test_created_topic_is_compacted_and_auto_create_can_be_off",
    "auto.increment.repeated-rows = true": "tablestore/connect/test_writer.py::test_8_generated_keys_are_new_rows",
    "bearer.auth.credentials.source": (
        "formats/registered/test_tokens.py::test_a_token_is_asked_for_once_and_sent_with_every_request"
    ),
    "commit.min-interval": "maxcompute/test_maintenance.py::test_a_commit_that_comes_too_soon_is_left_to_a_later_run",
    "control.table": "declarations/test_connect_faults.py::test_1_2_two_connectors_of_one_table",
    "csv.null-literal": "kafka/sink/test_held.py::test_what_a_format_cannot_hold_is_not_missed",
    "delete.mode = column": "tablestore/connect/test_delete_modes.py::test_8_1_to_8_3",
    "delete.mode = none": "tablestore/connect/test_delete_modes.py::test_8_1_to_8_3",
    "errors.deadletterqueue.topic.replication.factor": (
        "graph/test_connect_failures.py::test_1_4_dead_letters_are_the_records_that_the_converters_cannot_read"
    ),
    "fail-on-missing-field": "kafka/catalogue/test_json.py::test_missing_and_ignored",
    "freshness.max-age": (
        "graph/test_asset_attributes.py::test_an_age_that_is_declared_is_the_freshness_policy_of_the_asset"
    ),
    "json-registry.subject": "formats/registered/test_registered_formats.py::test_subjects_are_named_by_strategy",
    "json.map-null-key.mode": "kafka/catalogue/test_json.py::test_null_keys_of_maps",
    "key.fields": "kafka/catalogue/test_decode.py::test_a_prefixed_key",
    "key.format": "kafka/source/test_fitting_format.py::test_the_reason_names_the_format_that_reads_the_keys",
    "odps.tunnel.end.point": "maxcompute/test_destination.py::test_a_batch_that_cannot_be_sent_leaves_nothing_behind",
    "on-data-loss = continue": "kafka/source/test_source.py::test_lost_records_are_counted_when_going_on",
    "on-error = quarantine": "tablestore/test_writer.py::test_on_error_fail_stops_at_a_refused_row",
    "on-truncate = delete": "systems/test_mysql_changes.py::test_a_truncated_table",
    "on-unlogged-values = snapshot": "systems/test_mysql_unlogged.py::test_a_snapshot_reads_what_no_log_tells",
    "primarykey.mode = record_key": "tablestore/connect/test_delete_modes.py::test_8_1_to_8_3",
    "properties.group.id": "kafka/source/test_offsets.py::test_group_goes_on_where_the_group_stands",
    "properties.ssl.keystore.password": "kafka/test_security.py::test_a_key_with_a_password_of_its_own",
    "raw.charset": "formats/test_csv_raw_rules.py::test_raw_is_read_as_flink_reads_it",
    "sasl.oauthbearer.token.endpoint.url": "kafka/test_properties.py::test_translates",
    "sink.coordinator.enable = false": (
        "maxcompute/test_table.py::test_without_coordinator_upsert_is_refused_and_tasks_of_insert_have_sessions"
    ),
    "sink.dynamic-partition.limit": (
        "maxcompute/test_partitions.py::test_58_more_partitions_than_the_limit_is_an_error_before_anything_is_written"
    ),
    "sink.operation = insert": (
        "maxcompute/test_insert.py::test_rows_that_are_inserted_take_the_place_of_those_with_their_key"
    ),
    "sink.operation = upsert": "maxcompute/test_pipeline.py::test_an_upsert_stream_converges_and_repeats_nothing",
    "sink.partition.assigner.class": "maxcompute/test_partitions.py::test_63_an_assigner_computes_the_partition",
    "sink.partition.move-rows = true": "graph/test_partition_rows.py::test_a_row_moves_where_that_is_declared",
    "sink.transactional-id-prefix": f"{DESTINATION}test_49_51_records_state_and_reading_back",
    "spark.kubernetes.container.image": "spark/test_profiles.py::test_what_cannot_work_is_refused_with_its_remedy",
    "spark.master": "spark/test_profiles.py::test_what_works_is_taken",
    "static.value": "tablestore/connect/test_transforms.py::test_insert_field",
    "table-name": "postgres/test_declaration.py::test_a_long_name_is_given_by_an_option",
    "table.name": "declarations/test_connect.py::test_rules_and_connection_of_the_sink",
    "tablestore.access.key.id": "declarations/test_connect.py::test_1_2_credentials",
    "tablestore.auth.mode = sts": "declarations/test_connect.py::test_1_2_credentials",
    "tablestore.sts.token": "tablestore/test_credentials.py::test_a_temporary_key_may_assume_a_role",
    "tls.mode = verify_ca": "mysql/test_options.py::test_what_a_certificate_is_asked_by_the_systems_authorities",
    "topics.assign.tables": "declarations/test_connect.py::test_45_46_topics_and_their_tables",
    "truncate-timestamps = true": (
        "graph/test_fine_timestamps.py::test_the_refusal_of_a_fine_timestamp_names_an_option_that_has_this_effect"
    ),
    "use.latest.version": (
        "formats/registered/test_registered_formats.py::test_the_newest_schema_of_a_subject_is_written"
    ),
    "value.converter": (
        "tablestore/connect/test_writer.py::test_1_4_what_the_converters_cannot_read_is_told_from_what_is_dirty"
    ),
    "value.fields-include = EXCEPT_KEY": f"{DESTINATION}test_key_order_prefix_and_except_key",
    "write.api = maxstorage": "maxcompute/test_stored.py::test_rows_move_and_go_by_keys_of_every_stored_form",
    "zero-dates = null": "mysql/binlog/test_values.py::test_dates_that_do_not_exist_follow_the_policy",
}  # fmt: skip
"""Remedy to the test that holds its effect."""


def _messages() -> Iterator[tuple[str, str]]:
    """Place and text of every text in the package that is no docstring; what is put in is written as {}."""
    constants = {"TRUNCATE_TIMESTAMPS": "truncate-timestamps"}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            place = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.JoinedStr):
                yield place, "".join(_shown(part, constants) for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                yield place, node.value


def _shown(part: ast.expr, constants: dict[str, str]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    value = part.value if isinstance(part, ast.FormattedValue) else part
    return constants.get(value.id, "{}") if isinstance(value, ast.Name) else "{}"


def _remedies() -> dict[str, str]:
    found = {}
    for place, text in _messages():
        for match in _REMEDY.finditer(text):
            name, value = match[1] or match[3], match[2] or match[4]
            found.setdefault(f"{name} = {value}" if value else name, place)
    return found


def test_every_remedy_that_a_message_names_has_a_test_of_its_effect() -> None:
    found = _remedies()
    assert not {name: place for name, place in found.items() if name not in CASES}, "add the test of its effect"
    assert not CASES.keys() - found.keys(), "no message names them any more"


@pytest.mark.parametrize("remedy", CASES)
def test_the_test_of_a_remedy_is_there_and_is_about_it(remedy: str) -> None:
    path, _, name = CASES[remedy].partition("::")
    text = (TESTS / path).read_text("utf-8")
    functions = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert name in functions
    option, _, value = remedy.removeprefix("properties.").removeprefix("json-registry.").partition(" = ")
    assert _plain(option) in _plain(text)
    assert _plain(value) in _plain(text)


def _plain(text: str) -> str:
    """Option names are spelled with other separators as keyword arguments."""
    return re.sub(r"[^a-z0-9]", "", text.lower())
