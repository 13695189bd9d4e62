"""What is in `deploy/` is what Docker, Compose, Dagster's chart and Kubernetes take, by their schemas and a linter."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource

from upsert_platform_tests.systems.dagster_chart import SCHEMA

pytestmark = pytest.mark.systems

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
KUBERNETES = "v1.33.0-local-strict"


def linted(dockerfile: Path) -> tuple[int, str]:
    """What hadolint says of a Dockerfile."""
    done = subprocess.run([BIN / "hadolint", "--no-color", dockerfile], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def of_compose(compose: dict[str, Any], folder: Path) -> tuple[int, str]:
    """What the schema of Compose's specification says, of a file whose merges are carried out."""
    path = folder / "compose.json"
    path.write_text(json.dumps(compose), "utf-8")
    done = subprocess.run(
        [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", path], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def of_chart(values: dict[str, Any]) -> list[str]:
    """What is wrong with values of the chart: place and reason."""
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / KUBERNETES
    kubernetes = Resource.from_contents(json.loads((folder / "_definitions.json").read_text("utf-8")))
    validator = jsonschema.Draft202012Validator(SCHEMA, registry=kubernetes @ Registry())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(values)]


def _answers(engine: str) -> bool:
    found = shutil.which(engine)
    return found is not None and subprocess.run([found, "info"], capture_output=True).returncode == 0


def test_the_image_passes_the_linter(tmp_path: Path) -> None:
    assert linted(DEPLOY / "Dockerfile") == (0, "")
    careless = tmp_path / "Dockerfile"
    careless.write_text((DEPLOY / "Dockerfile").read_text("utf-8").replace("# hadolint ignore=DL3008\n", ""), "utf-8")
    code, told = linted(careless)
    assert code == 1
    assert "DL3008" in told


@pytest.mark.timeout(1800)
def test_the_image_is_built_and_runs_the_demo_or_the_script_says_that_no_engine_answers() -> None:
    """Here Docker or Podman answers, or nobody can build an image: the script is to find out which, and to say so."""
    done = subprocess.run([ROOT / "scripts" / "image"], capture_output=True, text=True)
    if not any(_answers(engine) for engine in ("docker", "podman")):
        told = "image: neither docker nor podman answers here: nothing was built\n"
        assert (done.returncode, done.stdout, done.stderr) == (3, "", told)
        return
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("equal to a plain count of the records") == 4


def test_the_services_are_what_compose_takes(tmp_path: Path) -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    assert of_compose(compose, tmp_path)[0] == 0, of_compose(compose, tmp_path)[1]
    compose["services"]["daemon"]["depends_on"]["code"] = {"condition": "service_ready"}
    code, told = of_compose(compose, tmp_path)
    assert code == 1
    assert "service_ready" in told or "depends_on" in told


def test_the_values_are_what_the_chart_and_kubernetes_take() -> None:
    assert of_chart(yaml.safe_load((DEPLOY / "helm-values.yaml").read_text("utf-8"))) == []


def _deployment(values: dict[str, Any]) -> dict[str, Any]:
    return values["dagster-user-deployments"]["deployments"][0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        (lambda values: values.update(dagsterDaemons={}), "dagsterDaemons"),
        (lambda values: _deployment(values).update(envSecret=[]), "envSecret"),
        (lambda values: _deployment(values).update(port="4000"), "port"),
        (lambda values: _deployment(values)["volumes"][0]["configMap"].update(nam="x"), "nam"),
        (lambda values: _deployment(values)["volumeMounts"][0].pop("mountPath"), "mountPath"),
        (lambda values: _deployment(values)["resources"]["limits"].update(memory=["2Gi"]), "memory"),
        (lambda values: values["runLauncher"]["config"].pop("k8sRunLauncher"), "k8sRunLauncher"),
        (
            lambda values: values["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]["jobSpecConfig"].update(
                ttlSecondsAfterFinished="a day"
            ),
            "ttlSecondsAfterFinished",
        ),
        (lambda values: values["retention"]["sensor"]["purgeAfterDays"].pop("started"), "purgeAfterDays"),
    ],
)
def test_what_chart_or_kubernetes_would_not_take_is_seen(spoil: Callable[[dict[str, Any]], object], place: str) -> None:
    values = yaml.safe_load((DEPLOY / "helm-values.yaml").read_text("utf-8"))
    spoil(values)
    (told,) = of_chart(values)
    assert place in told
