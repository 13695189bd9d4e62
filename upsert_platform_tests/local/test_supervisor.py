"""`local up`, `status` and `down`: on real servers, through the command."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, NewTopic

from upsert_platform.cli.main import main
from upsert_platform.local import supervisor
from upsert_platform.local.process import ServerError, free_port


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["local", *map(str, arguments)])


def pids(directory: Path) -> dict[str, int | None]:
    return {item.name: item.pid for item in supervisor.status(directory) if item.pid is not None}


def is_alive(pid: int | None) -> bool:
    """Whether a process runs; one whose parent did not ask about it yet has ended."""
    try:
        return psutil.Process(pid or 0).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory; what runs on it is ended after the test."""
    yield tmp_path / "data"
    supervisor.down(tmp_path / "data")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory on which a broker runs; for tests that leave it running."""
    directory = tmp_path_factory.mktemp("shared")
    supervisor.up(directory, only=["kafka"])
    yield directory
    supervisor.down(directory)


def test_up_writes_the_env_file_for_its_owner_alone(shared: Path) -> None:
    env_file = shared / "local.env"
    (status,) = [item for item in supervisor.status(shared) if item.name == "kafka"]
    assert env_file.read_text() == f"UPSERT_KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:{status.port}\n"
    assert {stat.S_IMODE((shared / name).stat().st_mode) for name in ("local.env", "local.json")} == {0o600}


def test_env_file_keeps_the_lines_of_others(shared: Path, tmp_path: Path) -> None:
    env_file = tmp_path / "folder" / ".env"
    env_file.parent.mkdir()
    env_file.write_text("# mine\nTOKEN=a=b\nUPSERT_KAFKA_BOOTSTRAP_SERVERS=elsewhere:1\n")
    variables = supervisor.up(shared, only=["kafka"], env_file=env_file)
    address = f"UPSERT_KAFKA_BOOTSTRAP_SERVERS={variables['UPSERT_KAFKA_BOOTSTRAP_SERVERS']}"
    assert env_file.read_text().splitlines() == ["# mine", "TOKEN=a=b", address]


def test_second_up_finds_the_first(shared: Path) -> None:
    before = pids(shared)
    result = run("up", "--data", shared, "--only", "kafka")
    assert result.exit_code == 0
    assert "kafka running already" in result.output
    assert pids(shared) == before


def test_other_port_for_a_running_server_is_refused(shared: Path) -> None:
    result = run("up", "--data", shared, "--only", "kafka", "--kafka-port", free_port())
    assert result.exit_code == 1
    assert "already" in result.output
    assert "local down" in result.output


def test_status_is_0_while_all_that_was_started_answers(shared: Path) -> None:
    result = run("status", "--data", shared)
    assert result.exit_code == 0
    assert result.output.split("\n")[1].split()[:2] == ["kafka", "running"]


def test_port_taken_while_down_is_replaced(data: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        data.mkdir()
        keys = {"tablestore_id": "a", "tablestore_secret": "b", "maxcompute_id": "c", "maxcompute_secret": "d"}
        (data / "local.json").write_text(json.dumps({"ports": {"tablestore": port}, "keys": keys}))
        endpoint = supervisor.up(data, only=["tablestore"])["UPSERT_TABLESTORE_ENDPOINT"]
        assert endpoint != f"http://127.0.0.1:{port}"
        assert [item.state for item in supervisor.status(data) if item.name == "tablestore"] == ["running"]


def test_named_port_that_is_taken_is_an_error(data: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=f"kafka cannot have port {port}: another process listens on it"):
            supervisor.up(data, only=["kafka"], ports={"kafka": port})


@pytest.mark.systems
def test_parallel_ups_start_one_broker_whose_data_and_port_stay_and_a_killed_one_is_replaced(data: Path) -> None:
    command = [sys.executable, "-m", "upsert_platform.cli.main", "local", "up", "--data", str(data), "--only", "kafka"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert sorted(text.splitlines()[0] for text in printed) == ["kafka running already", "kafka started"]

    bootstrap = (data / "local.env").read_text().strip().partition("=")[2]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(20)
    (pid,) = pids(data).values()
    down = run("down", "--data", data)
    assert (down.exit_code, down.output) == (0, "kafka stopped\n")
    assert not is_alive(pid)
    assert run("status", "--data", data).exit_code == 1
    assert "nothing runs" in run("down", "--data", data).output
    assert supervisor.up(data, only=["kafka"])["UPSERT_KAFKA_BOOTSTRAP_SERVERS"] == bootstrap
    assert "kept" in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics

    (pid,) = pids(data).values()
    psutil.Process(pid).kill()
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid or 0) else [], timeout=10)
    assert run("status", "--data", data).exit_code == 1
    supervisor.up(data, only=["kafka"])
    assert run("status", "--data", data).exit_code == 0
    assert pids(data)["kafka"] != pid


def test_all_servers_come_up_with_an_address_and_keys_and_go_down(data: Path) -> None:
    result = run("up", "--data", data)
    assert result.exit_code == 0, result.output
    ports = {item.name: item.port for item in supervisor.status(data) if item.state == "running"}
    lines = dict(line.split("=", 1) for line in (data / "local.env").read_text().splitlines())
    assert lines["UPSERT_KAFKA_BOOTSTRAP_SERVERS"] == f"127.0.0.1:{ports['kafka']}"
    assert lines["UPSERT_TABLESTORE_ENDPOINT"] == f"http://127.0.0.1:{ports['tablestore']}"
    assert lines["UPSERT_MAXCOMPUTE_ENDPOINT"] == f"http://127.0.0.1:{ports['maxcompute']}"
    secrets = {lines["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"], lines["UPSERT_MAXCOMPUTE_ACCESS_KEY"]}
    assert min(map(len, secrets)) >= 32
    told = {result.output, *(" ".join(psutil.Process(pid).cmdline()) for pid in pids(data).values())}
    assert not [secret for secret in secrets for text in told if secret in text]
    assert set(pids(data)) == {"kafka", "maxcompute", "tablestore"}
    assert sorted(supervisor.down(data)) == ["kafka", "maxcompute", "tablestore"]
    assert pids(data) == {}


def test_failing_server_leaves_the_others_running(data: Path) -> None:
    (data / "tablestore").mkdir(parents=True)
    (data / "tablestore" / "data").write_text("a file in the place of the data directory")
    with pytest.raises(ServerError, match="the Tablestore server ended with code"):
        supervisor.up(data, only=["kafka", "tablestore"])
    assert set(pids(data)) == {"kafka"}


def test_registry_comes_up_when_asked_for(data: Path) -> None:
    url = supervisor.up(data, only=["registry"])["UPSERT_SCHEMA_REGISTRY_URL"]
    assert requests.get(f"{url}/subjects", timeout=20).json() == []
    assert set(pids(data)) == {"registry"}


def test_damaged_state_is_an_error_with_the_remedy(data: Path) -> None:
    data.mkdir()
    (data / "local.json").write_text("{")
    result = run("up", "--data", data)
    assert result.exit_code == 1
    assert "local.json is damaged" in result.output


@pytest.mark.parametrize("only", ["kafka,oracle", "", ","])
def test_only_takes_known_servers(data: Path, only: str) -> None:
    result = run("up", "--data", data, "--only", only)
    assert result.exit_code == 2
    assert "kafka, tablestore, maxcompute, registry, mysql" in result.output


def test_port_of_a_server_that_is_not_wanted_is_refused(data: Path) -> None:
    result = run("up", "--data", data, "--only", "kafka", "--tablestore-port", free_port())
    assert result.exit_code == 1
    assert "a port is named for tablestore" in result.output
    assert not data.exists()


@pytest.mark.parametrize("command", ["down", "status"])
def test_directory_where_nothing_ever_ran(tmp_path: Path, command: str) -> None:
    result = run(command, "--data", tmp_path / "none")
    assert result.exit_code == (1 if command == "status" else 0)
    assert not (tmp_path / "none").exists()


def test_default_directory_follows_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPSERT_PLATFORM_HOME", raising=False)
    assert supervisor.default_directory() == Path(".upsert_platform/local")
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", "/srv/platform")
    assert supervisor.default_directory() == Path("/srv/platform/local")
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", "~/platform")
    assert supervisor.default_directory() == Path.home() / "platform" / "local"


def test_variables_of_the_servers_are_found_beside_a_lake_that_is_a_uri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from upsert_platform.changelog import lake

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", "s3://bucket/lake")
    directory = supervisor.default_directory()
    assert directory == Path(".upsert_platform/local")
    directory.mkdir(parents=True)
    (directory / "local.env").write_text("# servers\nUPSERT_TABLESTORE_INSTANCE=local\n")
    assert lake.local_variables(lake.home()) == {"UPSERT_TABLESTORE_INSTANCE": "local"}


def test_a_folder_that_cannot_be_written_is_told_in_one_line() -> None:
    done = run("up", "--data", "/proc/nowhere/local", "--only", "tablestore")
    assert done.exit_code == 1
    assert done.output.strip() == (
        "Error: /proc/nowhere/local cannot be written: No such file or directory; name another folder with --data, or"
        " in UPSERT_PLATFORM_HOME [UP-2202]"
    )
