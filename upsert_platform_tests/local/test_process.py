"""Server processes: recognised again, ended, and explained when they fail."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from upsert_platform.local import process
from upsert_platform.local.process import Server, ServerError

SERVES = """
import http.server, sys
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.BaseHTTPRequestHandler).serve_forever()
"""
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SERVES}"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A server's directory; what runs there is ended after the test."""
    yield tmp_path / "server"
    process.stop_noted(tmp_path / "server" / "server.pid", timeout=1)


def python_server(home: Path, code: str = SERVES, port: int | None = None) -> Server:
    port = port or process.free_port()
    return Server("the server", (sys.executable, "-c", code, str(port)), home, port, lambda: process.accepts(port))


def test_started_server_answers_and_is_known_by_its_pid_file(home: Path) -> None:
    server = python_server(home)
    started = process.start(server)
    assert server.answers()
    assert process.running(server.pid_file) == started


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the start of a process is told by the clock")
def test_a_server_is_known_when_the_clock_is_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = python_server(home)
    started = process.start(server)
    before = psutil.Process.create_time
    with monkeypatch.context() as patched:
        patched.setattr(psutil.Process, "create_time", lambda found: before(found) - 3600)
        found = process.running(server.pid_file)
    assert found is not None
    assert found.pid == started.pid


def test_stop_ends_it_and_forgets_it(home: Path) -> None:
    server = python_server(home)
    started = process.start(server)
    assert process.stop(server) is True
    assert not started.is_running()
    assert not server.pid_file.exists()
    assert process.stop(server) is False


def test_server_that_ignores_terminate_is_killed(home: Path) -> None:
    server = python_server(home, STUBBORN)
    started = process.start(server)
    assert process.stop(server, timeout=0.3) is True
    assert not started.is_running()


def test_server_whose_parent_never_asks_about_it_has_ended_all_the_same(home: Path, tmp_path: Path) -> None:
    """A UI that was asked to bring servers up is their parent, and stays one when another terminal ends them."""
    code = (
        "import sys, time; from pathlib import Path; from upsert_platform_tests.local import test_process as tests\n"
        "tests.process.start(tests.python_server(Path(sys.argv[1]))); print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(home)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        try:
            assert process.stop_noted(home / "server.pid", timeout=5) is True
        finally:
            parent.kill()
    assert not (home / "server.pid").exists()


def test_killed_server_is_not_running(home: Path) -> None:
    server = python_server(home)
    started = process.start(server)
    started.send_signal(signal.SIGKILL)
    started.wait(5)
    assert process.running(server.pid_file) is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"created": 1.0}, id="started at another time"),
        pytest.param({"arguments": ["-c", "something else"]}, id="runs another program"),
        pytest.param({"pid": 2**22 + 1}, id="no such pid"),
        pytest.param({"pid": "x"}, id="not a number"),
    ],
)
def test_pid_of_another_process_is_neither_taken_nor_ended(home: Path, change: dict[str, object]) -> None:
    server = python_server(home)
    started = process.start(server)
    noted = json.loads(server.pid_file.read_text())
    server.pid_file.write_text(json.dumps({**noted, **change}))
    try:
        assert process.running(server.pid_file) is None
        assert process.stop(server) is False
        assert started.is_running()
    finally:
        started.kill()
        started.wait(5)


@pytest.mark.parametrize("text", ["", "17", "{}", "not json"])
def test_damaged_pid_file_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.pid").write_text(text)
    assert process.running(tmp_path / "server.pid") is None


def test_server_that_ends_is_an_error_with_the_end_of_its_log(home: Path) -> None:
    server = python_server(home, "import sys; print('first'); sys.exit('no room on disk')")
    with pytest.raises(ServerError, match=r"the server ended with code 1(.|\n)*server\.log(.|\n)*no room on disk"):
        process.start(server)
    assert not server.pid_file.exists()


def test_error_shows_this_start_alone(home: Path) -> None:
    with pytest.raises(ServerError, match="earlier trouble"):
        process.start(python_server(home, "raise SystemExit('earlier trouble')"))
    with pytest.raises(ServerError) as caught:
        process.start(python_server(home, "raise SystemExit('later trouble')"))
    assert "later trouble" in str(caught.value)
    assert "earlier trouble" not in str(caught.value)


def test_silent_server_is_ended_at_the_time_limit(home: Path) -> None:
    server = python_server(home, "import time; time.sleep(60)")
    with pytest.raises(ServerError, match="did not answer within 0 s and logged nothing"):
        process.start(server, timeout=0.4)
    assert process.running(server.pid_file) is None


def test_answer_of_another_process_on_the_port_does_not_count(home: Path, tmp_path: Path) -> None:
    other = python_server(tmp_path / "other")
    process.start(other)
    port = int(other.command[-1])
    try:
        with pytest.raises(ServerError, match="ended with code 1"):
            process.start(python_server(home, f"import time; time.sleep(0.2)\n{SERVES}", port), timeout=5)
    finally:
        process.stop(other)


def test_environment_of_a_server_is_written_nowhere(home: Path) -> None:
    base = python_server(home, f"import os; assert os.environ['SECRET'] == 'hush' * 2\n{SERVES}")
    server = replace(base, environment={"SECRET": "hushhush"})
    process.start(server)
    assert "hushhush" not in repr(server)
    assert not [path for path in home.rglob("*") if path.is_file() and "hushhush" in path.read_text()]


@pytest.mark.skipif(sys.platform != "linux", reason="only the Linux kernel ends a process with its parent")
def test_server_can_end_with_its_parent(home: Path) -> None:
    code = f"""
import os
from pathlib import Path
from upsert_platform.local import process
from upsert_platform_tests.local.test_process import python_server
print(process.start(python_server(Path({str(home)!r})), die_with_parent=True).pid, flush=True)
os._exit(0)
"""
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the server outlived its parent"
        time.sleep(0.05)


def test_port_in_use_is_not_free() -> None:
    port = process.free_port()
    assert process.is_free(port)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert not process.is_free(port)
