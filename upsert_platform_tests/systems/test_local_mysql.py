"""`local up --only mysql`: a MariaDB server of the machine or a MySQL server, with a user and a log of rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from upsert_platform.local import mariadb, supervisor
from upsert_platform.local.process import ServerError
from upsert_platform.local.services import MYSQL_SERVERS
from upsert_platform.mysql.connection import Connection, Server, require_row_log

pytestmark = pytest.mark.systems


@pytest.mark.parametrize("chosen", MYSQL_SERVERS)
def test_it_keeps_its_data_user_and_port(chosen: str, tmp_path: Path) -> None:
    data = tmp_path / "local"
    found = supervisor.up(data, only=["mysql"], servers={"mysql": chosen})
    server = Server(
        found["UPSERT_MYSQL_HOST"],
        int(found["UPSERT_MYSQL_PORT"]),
        found["UPSERT_MYSQL_USER"],
        found["UPSERT_MYSQL_PASSWORD"],
    )
    try:
        with Connection(server) as connection:
            require_row_log(connection)
            assert connection.is_mariadb() is (chosen == "mariadb")
            connection.query("CREATE DATABASE shop")
        assert supervisor.down(data) == ["mysql"]
        assert supervisor.up(data, only=["mysql"]) == found
        with Connection(server) as connection:
            assert ("shop",) in connection.query("SHOW DATABASES"), "it is the server that it was last"
        other = next(name for name in MYSQL_SERVERS if name != chosen)
        with pytest.raises(ServerError, match=f"mysql runs as {chosen} already .*local down"):
            supervisor.up(data, only=["mysql"], servers={"mysql": other})
    finally:
        supervisor.down(data)


def test_without_a_server_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mariadb, "_PROGRAM_PATHS", str(tmp_path))
    assert shutil.which("mariadbd", path=str(tmp_path)) is None
    with pytest.raises(ServerError, match="apt-get install mariadb-server"):
        supervisor.up(tmp_path / "local", only=["mysql"])
