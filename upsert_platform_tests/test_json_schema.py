"""The JSON schema of declarations in YAML takes what the platform takes, and names every option."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform.core.options import option_fields
from upsert_platform.core.platform_options import PlatformSettings
from upsert_platform.kafka.options import UpsertKafkaSettings
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform_tests.declarations.test_declared_yaml import YAML as DECLARED


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    done = CliRunner().invoke(main, ["options", "--json-schema"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    jsonschema.Draft7Validator.check_schema(found)
    return dict(found)


def faults(schema: dict[str, Any], text: str) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(yaml.safe_load(text))]


def test_declarations_of_the_tests_fit(schema: dict[str, Any]) -> None:
    assert faults(schema, DECLARED) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("primary_key:", "primary-key:", "'primary-key' was unexpected"),
        ("connector: upsert-kafka", "connector: upsert-kafk", "is not one of"),
        ("options:", "optoins:", "'options' is a required property"),
        ("into:", "to:", "'into' is a required property"),
    ],
)
def test_what_is_misspelt_is_found(schema: dict[str, Any], before: str, after: str, told: str) -> None:
    assert before in DECLARED
    assert any(told in fault for fault in faults(schema, DECLARED.replace(before, after)))


def test_every_option_of_a_connector_is_named(schema: dict[str, Any]) -> None:
    options = schema["properties"]["tables"]["items"]["properties"]["options"]
    known = {item["if"]["properties"]["connector"]["const"]: item["then"]["properties"] for item in options["allOf"]}
    for connector, model in (("upsert-kafka", UpsertKafkaSettings), ("tablestore", TablestoreSettings)):
        named = {*option_fields(model), *option_fields(PlatformSettings)}
        assert named <= set(known[connector])
        assert all(known[connector][name]["description"] for name in named)
    assert "value.json.fail-on-missing-field" in known["upsert-kafka"]
    assert "UPSERT_PLATFORM_HOME" not in known["upsert-kafka"]
