"""What is in `deploy/` fits together: files that are named are there, so are services, volumes and variables."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib import metadata
from importlib.machinery import SourceFileLoader
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import yaml

from upsert_platform.kafka.endpoint import client_has_kerberos

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent


def _script(name: str) -> Any:
    """A script without an ending, as a module."""
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, str(ROOT / "scripts" / name)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LICENCES = _script("licences")


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def test_the_settings_of_the_checkout_are_those_that_setup_copies() -> None:
    """Dagster reads them from the folder where it is started, if DAGSTER_HOME is not set."""
    packaged = ROOT / "upsert_platform" / "demo" / "dagster.yaml"
    assert (ROOT / "dagster.yaml").read_bytes() == packaged.read_bytes()


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their arguments, lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def variables(value: Any) -> set[str]:
    """Names behind ``env`` anywhere in settings of Dagster."""
    if isinstance(value, dict):
        named = {value["env"]} if isinstance(value.get("env"), str) else set()
        return named.union(*(variables(item) for item in value.values()))
    return set().union(*(variables(item) for item in value)) if isinstance(value, list) else set()


def test_the_image_copies_what_is_there_and_runs_commands_that_are_installed() -> None:
    for instruction, text in instructions():
        if instruction == "COPY" and "--from" not in text:
            *sources, _ = text.split()
            assert [source for source in sources if not (ROOT / source).exists()] == []
        if instruction in ("CMD", "ENTRYPOINT"):
            program = json.loads(text)[0]
            assert program == "tini" or (BIN / program).exists()
    installed = " ".join(text for instruction, text in instructions() if instruction == "RUN")
    for package in ("openjdk-17-jre-headless", "tini"):
        assert package in installed
    assert {"--require-hashes", "--no-deps", "--no-build-isolation", "--no-index"} <= set(shlex.split(installed))
    installs = re.findall(r"pip install ([^&]*)", installed)
    assert all("--no-deps" in text and ("--require-hashes" in text or "--no-index" in text) for text in installs), (
        installs
    )
    assert {text for instruction, text in instructions() if instruction == "FROM"} == {
        "${PYTHON}",
        "${PYTHON} AS build",
    }


def test_the_lock_of_the_image_has_every_package_by_digest_and_in_the_versions_that_are_tested() -> None:
    text = (DEPLOY / "requirements.lock").read_text("utf-8")
    assert "://" not in text
    packages = [line for line in text.replace("\\\n", "").splitlines() if line and not line.lstrip().startswith("#")]
    assert [line for line in packages if "==" not in line or "--hash=sha256:" not in line] == []
    image, tested = LICENCES.pins(), LICENCES.pins(ROOT / "requirements.lock")
    assert {name: version for name, version in image.items() if tested.get(name, version) != version} == {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    wanted += [item for name in ("all", "apsara", "kubernetes", "postgres") for item in extras[name]]
    names = {re.split(r"[\[<>=]", item)[0].lower() for item in wanted}
    assert names <= image.keys()


def test_the_list_of_licences_is_what_the_packages_of_the_lock_say() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\S+) \| (.+) \|$", LICENCES.PAGE.read_text("utf-8"), re.MULTILINE)
    shown = {name: (version, licence) for name, version, licence in rows if ":" not in name}
    assert {name: version for name, (version, _) in shown.items()} == LICENCES.pins()
    for name, (version, licence) in shown.items():
        with suppress(PackageNotFoundError):
            if metadata.version(name) == version:
                assert LICENCES.licence(name) == licence, f"run scripts/licences: {name}"
    jars = {name: (version, licence) for name, version, licence in rows if ":" in name}
    assert jars == {name: (version, LICENCES.jar_licence(path)) for name, version, path in LICENCES.jars()}


def test_the_services_of_compose_know_each_other() -> None:
    compose = read("compose.yaml")
    services, named = compose["services"], variables([read("dagster.yaml"), read("workspace.yaml")])
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        mounted = {item.split(":")[0] for item in service.get("volumes", ()) if not item.startswith((".", "/"))}
        assert mounted <= compose["volumes"].keys()
        assert "image" in service
    ours = {name: service for name, service in services.items() if service["image"].startswith("upsert-platform")}
    assert set(ours) == {"code", "webserver", "daemon"}
    for service in ours.values():
        assert named <= service["environment"].keys()
        assert (BIN / service["command"][0]).exists()
        assert service["environment"]["UPSERT_CODE_HOST"] == "code"
        assert service["environment"]["UPSERT_CODE_PORT"] == ours["code"]["command"][-1]
    waits = {name for service in ours.values() for name, how in service["depends_on"].items() if "healthy" in str(how)}
    assert all("healthcheck" in services[name] for name in waits)
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_services_of_compose_are_given_the_variables_of_the_project() -> None:
    """Without `env_file`, Compose reads `.env` for the values in its own file alone."""
    services = read("compose.yaml")["services"]
    assert services["code"]["env_file"] == ".env"
    assert [name for name, service in services.items() if "env_file" in service] == ["code"], "secrets go no further"


def test_volumes_that_the_image_writes_are_of_its_user() -> None:
    """A new volume has the owner that its folder has in the image, and is root's where the image has none."""
    (user,) = [text for name, text in instructions() if name == "USER"]
    (setup,) = (text for name, text in instructions() if name == "RUN" and f"--uid {user}" in text)
    commands = setup.split(" && ")
    made = {path for text in commands if "mkdir" in text for path in text.split() if path.startswith("/")}
    owned = {path for text in commands if text.strip().startswith("chown") for path in text.split()}
    services = read("compose.yaml")["services"]
    for name in ("code", "webserver", "daemon"):
        for volume in services[name].get("volumes", ()):
            source, path, *modes = volume.split(":")
            if "ro" not in modes and not source.startswith((".", "/")):
                assert path in made & owned
        assert services[name]["environment"]["UPSERT_PLATFORM_HOME"] in made & owned


@pytest.mark.parametrize("name", ["dagster.yaml", "helm-values.yaml"])
def test_both_instances_keep_records_as_long_and_start_as_many_runs(name: str) -> None:
    text = (DEPLOY / name).read_text("utf-8")
    assert re.search(r"[mM]ax_?[cC]oncurrent_?[rR]uns: 4\b", text)
    kept = re.findall(r"purge_?[aA]fter_?[dD]ays: (\{.*\})", text)
    assert kept == ["{skipped: 3, success: 30, failure: 30, started: 30}"] * 2


def test_the_helm_values_serve_this_code_location() -> None:
    values = read("helm-values.yaml")
    (location,) = values["dagster-user-deployments"]["deployments"]
    image = dict(instructions())
    assert location["codeServerArgs"] == ["-m", "upsert_platform.definitions"]
    assert str(location["port"]) == image["EXPOSE"]
    (mount,) = location["volumeMounts"]
    assert f"UPSERT_PLATFORM_PROJECT={mount['mountPath']}" in [text for name, text in instructions() if name == "ENV"]
    assert {item["name"] for item in location["volumes"]} == {mount["name"]}
    launcher = values["runLauncher"]
    assert set(launcher["config"]) == {launcher["type"][0].lower() + launcher["type"][1:]}


def test_the_image_with_kerberos_builds_the_client_that_the_platform_has_and_refuses_one_without_it() -> None:
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile.kerberos").read_text("utf-8"), flags=re.MULTILINE)
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${PLATFORM}", "${PLATFORM}"]
    (version,) = re.findall(r"upsert-platform:(\S+)$", text.splitlines()[0])
    assert f"-t upsert-platform:{version} " in (DEPLOY / "Dockerfile").read_text("utf-8")
    for told in ("libsasl2-dev", "--enable-gssapi", "--no-binary confluent-kafka", "libsasl2-modules-gssapi-mit"):
        assert told in text
    (asked,) = re.findall(r'python -c "(from confluent_kafka import Producer; .*)"', text)
    checked = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert (checked.returncode == 0) is client_has_kerberos()
    assert checked.returncode == 0 or "sasl_gssapi" in checked.stderr
