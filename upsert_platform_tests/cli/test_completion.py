"""bash, zsh and fish complete commands, tables, jobs and identifiers of errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main


def completed(shell: str, *words: str) -> set[str]:
    """Return what a shell is offered for the last of some words."""
    typed = ["upsert-platform", *words]
    variables = {"_UPSERT_PLATFORM_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(typed)}
    variables["COMP_CWORD"] = words[-1] if shell == "fish" else str(len(words))
    output = CliRunner().invoke(main, [], env=variables, prog_name="upsert-platform").output
    if shell == "zsh":  # type, value and help, a line each
        return set(output.splitlines()[1::3])
    return {line.split(",", 1)[1].split("\t")[0] for line in output.splitlines()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("verif",), {"verify"}),
        (("explain-error", "UP-110"), {f"UP-11{number:02}" for number in range(1, 10)}),
        (("options", "table"), {"tablestore"}),
        (("run", "ver"), {"verify"}),
        (("verify", "users_t"), {"users_table"}),
        (("reset", "users"), {"users", "users_table"}),
    ],
)
def test_shell_completes(
    shell: str, words: tuple[str, ...], offered: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tables.sql").write_text(
        "CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ("
        "'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = '127.0.0.1:9',"
        "'key.format' = 'json', 'value.format' = 'json');"
        "CREATE TABLE users_table (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ("
        "'connector' = 'upsert-kafka', 'topic' = 'copy', 'properties.bootstrap.servers' = '127.0.0.1:9',"
        "'key.format' = 'json', 'value.format' = 'json');"
        "INSERT INTO users_table SELECT id, name FROM users;"
    )
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(tmp_path))
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    assert completed(shell, *words) == offered
