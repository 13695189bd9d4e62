"""The local schema registry: the calls of the Confluent API that formats use, and what survives a restart."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
import requests

from upsert_platform.local.registry import Registry, start_registry

USER = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}
WIDER = {**USER, "fields": [*USER["fields"], {"name": "name", "type": ["null", "string"], "default": None}]}
OTHER = {**USER, "fields": [{"name": "id", "type": "string"}]}


def register(registry: Registry, subject: str, schema: object) -> requests.Response:
    body = {"schema": json.dumps(schema)}
    return requests.post(f"{registry.url}/subjects/{subject}/versions", json=body, timeout=20)


@pytest.fixture
def subject() -> str:
    """A subject of its own."""
    return f"{uuid.uuid4().hex[:8]}-value"


def test_registered_schema_is_found_by_id_and_subject(schema_registry: Registry, subject: str) -> None:
    schema_id = register(schema_registry, subject, USER).json()["id"]
    by_id = requests.get(f"{schema_registry.url}/schemas/ids/{schema_id}", timeout=20).json()
    assert json.loads(by_id["schema"]) == USER
    latest = requests.get(f"{schema_registry.url}/subjects/{subject}/versions/latest", timeout=20).json()
    assert (latest["id"], latest["version"], json.loads(latest["schema"])) == (schema_id, 1, USER)


def test_same_schema_keeps_its_id_and_another_gets_a_version(schema_registry: Registry, subject: str) -> None:
    first = register(schema_registry, subject, USER).json()["id"]
    assert register(schema_registry, subject, USER).json()["id"] == first
    assert register(schema_registry, subject, WIDER).json()["id"] != first
    assert requests.get(f"{schema_registry.url}/subjects/{subject}/versions", timeout=20).json() == [1, 2]


def test_incompatible_schema_is_refused_once_compatibility_is_set(schema_registry: Registry, subject: str) -> None:
    register(schema_registry, subject, USER)
    config = {"compatibility": "BACKWARD"}
    assert requests.put(f"{schema_registry.url}/config/{subject}", json=config, timeout=20).status_code == 200
    assert register(schema_registry, subject, OTHER).status_code == 409
    assert register(schema_registry, subject, WIDER).status_code == 200


@pytest.mark.parametrize(
    ("path", "code"), [("schemas/ids/2147483000", 40403), ("subjects/never-made/versions/latest", 40401)]
)
def test_unknown_is_404_with_the_confluent_error_code(schema_registry: Registry, path: str, code: int) -> None:
    response = requests.get(f"{schema_registry.url}/{path}", timeout=20)
    assert (response.status_code, response.json()["error_code"]) == (404, code)


@pytest.mark.soak
def test_schemas_and_ids_survive_a_restart(tmp_path: Path) -> None:
    with start_registry(tmp_path / "registry", die_with_parent=True) as registry:
        schema_id = register(registry, "kept-value", USER).json()["id"]
    with start_registry(tmp_path / "registry", die_with_parent=True) as again:
        latest = requests.get(f"{again.url}/subjects/kept-value/versions/latest", timeout=20).json()
        assert (latest["id"], json.loads(latest["schema"])) == (schema_id, USER)
