"""Keys of records against the declared primary key: other fields are ignored and make no key."""

import json
from pathlib import Path

import pytest

from upsert_platform import testing

TABLES = """CREATE TABLE lines (shop STRING, line BIGINT, text STRING, PRIMARY KEY (shop, line) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'lines', 'properties.bootstrap.servers' = '${BROKERS}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copies (shop STRING, line BIGINT, text STRING, PRIMARY KEY (shop, line) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}');
INSERT INTO copies SELECT * FROM lines;
"""
KEYS: dict[str, str | None] = {
    '{"shop": "a", "line": 1}': None,
    '{"line": 2, "till": 9, "shop": "a"}': None,
    '{"shop": "a"}': "line",
    '{"line": 1}': "shop",
    '{"shop": "a", "line": null}': "line",
    '{"shop": "a", "LINE": 1}': "line",
    '{"id": 7}': "shop",
    "{}": "shop",
}
"""Key to the column that it lacks; None where it has both."""


@pytest.mark.parametrize("values_hold_key", [True, False], ids=["upserts", "tombstones"])
def test_a_key_that_lacks_a_column_is_quarantined_by_its_name(tmp_path: Path, values_hold_key: bool) -> None:
    (tmp_path / "lines.sql").write_text(TABLES, "utf-8")
    before = [{"shop": "a", "line": line, "text": "x"} for line in (1, 2, 3)]
    with testing.project(tmp_path) as project:
        project.send("lines", before)
        for key in KEYS:
            line = json.loads(key).get("line", 1)
            value = json.dumps({"shop": "a", "line": line, "text": "y"}).encode() if values_hold_key else None
            project.send_record("lines", key=key.encode(), value=value)
        outcome = project.sync()
        after = [row | {"text": "y"} for row in before[:2]] if values_hold_key else []
        assert project.rows("copies") == [*after, before[2]]
        assert not outcome.checks["changelogs/lines:quarantine_below"]
        store = project.platform.changelog(project.platform.sound().sources["lines"])
        found = store.read_arrow(["_raw_key", "_reason"], kind="?", after=0, upto=None).to_pylist()
        lacking = {key: column for key, column in KEYS.items() if column is not None}
        assert len(found) == len(lacking)
        for row in found:
            assert f"'{lacking[row['_raw_key'].decode()]}'" in row["_reason"], row
