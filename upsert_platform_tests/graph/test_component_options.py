"""Options of the component: texts, whatever YAML and templates make of them."""

from __future__ import annotations

import dagster as dg
import pytest
from dagster.components.resolved.errors import ResolutionException
from pydantic import ValidationError

from upsert_platform.graph.project_component import UpsertProjectComponent
from upsert_platform.graph.resources import KafkaResource


def component(options: str) -> UpsertProjectComponent:
    return UpsertProjectComponent.resolve_from_yaml(f"kafka:\n  {options}\n")


@pytest.mark.parametrize(
    "secret", ["0815", "815", "1e5", "12_34", "0x1f", "'quoted'", "[1, 2]", "True", "None", "{{ 1 }}", ""]
)
def test_a_secret_of_the_environment_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv("A_SECRET", secret)
    found = component('{properties.sasl.password: "{{ env.A_SECRET }}", other: "x-{{ env.A_SECRET }}"}')
    assert found.kafka == {"properties.sasl.password": secret, "other": f"x-{secret}"}


@pytest.mark.parametrize(
    ("written", "text"), [("1000", "1000"), ('"1000"', "1000"), ("true", "true"), ('"true"', "true"), ("1.5", "1.5")]
)
def test_scalars_are_texts(written: str, text: str) -> None:
    assert component(f"{{batch.max-records: {written}}}").kafka == {"batch.max-records": text}


def test_errors_show_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "1234567")
    with pytest.raises(ValidationError) as caught:
        UpsertProjectComponent(kafka={"a": 1234567})  # type: ignore[dict-item]
    assert "1234567" not in str(caught.value)
    with pytest.raises(ValidationError) as caught:
        KafkaResource(options={"a": 1234567})  # type: ignore[dict-item]
    assert "1234567" not in str(caught.value)
    with pytest.raises((ValidationError, ResolutionException)) as refused:
        component('{a: ["{{ env.A_SECRET }}"]}')
    assert "1234567" not in str(refused.value)


def test_a_template_of_nothing_is_refused_with_its_option() -> None:
    with pytest.raises(ResolutionException, match=r"batch\.max-records"):
        component('{batch.max-records: "{{ nothing }}"}')


@pytest.mark.parametrize("template", ["{{ env.NOT_SET_ANYWHERE }}", "{{ env('NOT_SET_ANYWHERE') }}"])
def test_a_variable_that_is_not_set_stays_one_until_a_run_needs_it(template: str) -> None:
    assert component(f'{{a: "x-{template}"}}').kafka == {"a": "x-${NOT_SET_ANYWHERE}"}


def test_a_default_of_a_template_applies() -> None:
    found = component("""{a: "{{ env('NOT_SET_ANYWHERE', '7') }}"}""")
    assert found.kafka == {"a": "7"}
    assert isinstance(found, dg.Component)
