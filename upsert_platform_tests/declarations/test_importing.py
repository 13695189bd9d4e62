"""Files of other platforms in a project: they mean what they meant, and no secret lies in the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from upsert_platform.cli.main import main
from upsert_platform.core.errors import DeclarationError
from upsert_platform.declarations.importing import CONNECT, PIPELINE, SQL, plan_import, write_import
from upsert_platform.declarations.project import load_project
from upsert_platform.sync.connectors import CONNECTORS

SECRETS = ("s3cr3t", "bob-pass", "it's")
FILES = {
    "orders.sql": """-- don't forget: 'properties.sasl.jaas.config' = 'old s3cr3t'
CREATE TABLE orders (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'o', 'properties.bootstrap.servers' = 'h:1',
  'properties.security.protocol' = 'SASL_PLAINTEXT', 'properties.sasl.mechanism' = 'PLAIN',
  'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.plain.PlainLoginModule required
     username="bob" password="bob-pass";',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE serving (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore',
  'tablestore.endpoint' = 'http://h:1', 'tablestore.instance.name' = 'i',
  'tablestore.access.key.id' = 'AKID', 'tablestore.access.key.secret' = 'it''s s3cr3t');
INSERT INTO serving SELECT id, v FROM orders;
""",
    "sink.properties": """# tablestore.access.key.secret = s3cr3t
name=sink
connector.class=TableStoreSinkConnector
topics=clicks
tablestore.endpoint=http://h:1
tablestore.instance.name=i
tablestore.access.key.id=AKID
tablestore.access.key.secret: s3cr3t-\\
   of-two-lines
tablestore.clicks.primarykey.name=kafka
consumer.override.bootstrap.servers=${file:/etc/kafka.properties:servers}
""",
    "posted.json": """{"name": "posted", "config": {"connector.class": "TableStoreSinkConnector", "topics": "views",
\t"tablestore.endpoint": "http://h:1", "tablestore.instance.name": "i", "tablestore.access.key.id": "AKID",
\t"tablestore.access.key.secret": "s3cr3t", "consumer.override.bootstrap.servers": "h:1"}}
""",
    "copy.yaml": """source:
  type: upsert-kafka
  tables: orders
sink:
  type: tablestore
  tablestore.endpoint: http://h:1
  tablestore.instance.name: i
  tablestore.access.key.id: AKID
  tablestore.access.key.secret: |
    s3cr3t
  table.name: copied
""",
}


@pytest.fixture
def given(tmp_path: Path) -> list[Path]:
    """The files, in a folder of another platform."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return [folder / name for name in FILES]


def test_no_secret_is_written_and_values_are_those_of_the_files(given: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "project"
    plan = plan_import(given, folder)
    write_import(plan, folder)
    assert [item.kind for item in plan.files] == [SQL, CONNECT, CONNECT, PIPELINE]
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    for secret in (*SECRETS, "AKID"):
        assert secret not in "".join(texts.values())
        assert secret not in repr(plan)
    assert "it's s3cr3t" in plan.values.values()
    assert "s3cr3t-of-two-lines" in plan.values.values()
    assert "'tablestore.access.key.secret' = '${TABLESTORE_ACCESS_KEY_SECRET}'" in texts["orders.sql"]
    assert texts["orders.sql"].startswith("-- don't forget: 'properties.sasl.jaas.config' = '***'\nCREATE TABLE orders")
    assert texts["sink.properties"].startswith("# tablestore.access.key.secret = ***\nname=sink\n")
    assert "}\ntablestore.clicks.primarykey.name=kafka\n" in texts["sink.properties"]
    assert texts["copy.yaml"].endswith('secret: "${TABLESTORE_ACCESS_KEY_SECRET_4}"\n  table.name: copied\n')
    before = load_project(given[0].parent, {}, connectors=CONNECTORS)[0].tables["serving"].options
    after = load_project(folder, plan.values, connectors=CONNECTORS)[0].tables["serving"].options
    assert dict(before) == dict(after)
    jaas = load_project(folder, plan.values, connectors=CONNECTORS)[0].tables["orders"].options
    assert 'password="bob-pass"' in jaas["properties.sasl.jaas.config"]


def run(files: list[Path], folder: Path) -> Result:
    return CliRunner().invoke(main, ["import", *map(str, files), "--into", str(folder)])


def test_what_changes_is_told(given: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    done = run(given[:1], tmp_path / "project")
    assert done.exit_code == 0, done.output
    assert f"wrote {tmp_path / 'project' / 'orders.sql'}: Flink SQL" in done.output
    assert "line 10: 'tablestore.access.key.secret' is now ${TABLESTORE_ACCESS_KEY_SECRET} (a secret)" in done.output
    assert "2 tables, 1 insert: 0 errors" in done.output
    assert not any(secret in done.output for secret in SECRETS)
    provided = run(given[1:2], tmp_path / "project")
    assert "is now ${CONSUMER_OVERRIDE_BOOTSTRAP_SERVERS} (a configuration provider's)" in provided.output
    assert "\n  CONSUMER_OVERRIDE_BOOTSTRAP_SERVERS\n" in provided.output


def test_nothing_is_overwritten_and_nothing_unknown_taken(given: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "orders.sql").write_text("mine")
    (tmp_path / "notes.properties").write_text("a=b\n")
    (tmp_path / "notes.txt").write_text("text")
    refused = run([*given, tmp_path / "notes.properties", tmp_path / "notes.txt"], folder)
    assert refused.exit_code == 1
    assert refused.output.count("this is neither Flink SQL") == 2
    assert "is there already, and is not overwritten" in refused.output
    assert [path.name for path in folder.iterdir()] == ["orders.sql"]
    assert (folder / "orders.sql").read_text() == "mine"


def test_one_option_with_two_values_gets_two_variables(tmp_path: Path) -> None:
    line = "SET 'a.password' = '{}';\n"
    (tmp_path / "x.sql").write_text(line.format("one") + line.format("two") + line.format("one"))
    plan = plan_import([tmp_path / "x.sql"], tmp_path / "project")
    assert plan.files[0].text.count("${A_PASSWORD}") == 2
    assert dict(plan.values) == {"A_PASSWORD": "one", "A_PASSWORD_2": "two"}


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(DeclarationError, match="is not UTF-8"):
        plan_import([tmp_path / "x.sql"], tmp_path / "project")


def test_a_time_to_live_of_state_is_imported_as_it_is(tmp_path: Path) -> None:
    job = tmp_path / "job.sql"
    job.write_text("SET 'table.exec.state.ttl' = '1 h';\n", "utf-8")
    (found,) = plan_import([job], tmp_path / "into").files
    assert found.text == "SET 'table.exec.state.ttl' = '1 h';\n"
