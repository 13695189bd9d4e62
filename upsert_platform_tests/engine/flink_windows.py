"""Writes `flink_windows.json`: what windows of Flink SQL hold where every record moves the watermark.

Run it by the Python of an environment with apache-flink 2.2.1. Each record is followed by its watermark
(`pipeline.auto-watermark-interval` of 0), as each batch of one record moves the event time here.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

NOON = "2024-05-01 12:"
KINDS = {
    "tumble": "TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '3' SECOND)",
    "hop": "HOP(TABLE {}, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)",
    "cumulate": "CUMULATE(TABLE {}, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)",
    "session": "SESSION(TABLE {}, DESCRIPTOR(ts), INTERVAL '3' SECOND)",
}
FAR = 600_000
"""Milliseconds after noon of the last record, behind which every other window is closed."""


def moments() -> dict[str, list[int]]:
    """Names of cases to milliseconds after noon of their records; the delay is a second."""
    cases = {f"the record of {after:+} ms": [100, 3_999 + after, 200, FAR] for after in (-1, 0, 1, 2)}
    cases |= {f"a session's record of {after:+} ms": [100, 4_099 + after, 200, FAR] for after in (-1, 0, 1, 2)}
    for seed in range(4):
        rng = random.Random(seed)
        now, found = 10_000, []
        for _ in range(14):
            now += rng.choice([0, 1000, 1000, 2000])
            found.append(now - 1000 * rng.choice([0, 0, 1, 3, 5, 7]) + rng.choice([-2, -1, 0, 1]))
        cases[f"random {seed}"] = [*found, FAR]
    return cases


def text(moment: int) -> str:
    return f"{NOON}{moment // 60_000:02}:{moment // 1000 % 60:02}.{moment % 1000:03}"


def main() -> None:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    settings = Configuration()
    for name, value in {
        "parallelism.default": "1", "table.local-time-zone": "UTC", "pipeline.auto-watermark-interval": "0 ms",
        "rest.port": "0", "rest.bind-address": "127.0.0.1", "rest.address": "127.0.0.1",
        "taskmanager.memory.managed.size": "128m",
    }.items():  # fmt: skip
        settings.set_string(name, value)
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for place, (case, records) in enumerate(moments().items()):
            path = Path(folder) / f"{place}.csv"
            path.write_text("".join(f"{text(moment)}\n" for moment in records))
            tables.execute_sql(
                f"CREATE TABLE t{place} (ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH"
                f" ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')"
            )
            for kind, window in KINDS.items():
                result = tables.execute_sql(
                    "SELECT CAST(window_start AS STRING), CAST(window_end AS STRING), COUNT(*) FROM"
                    f" TABLE({window.format(f't{place}')}) GROUP BY window_start, window_end"
                )
                with result.collect() as rows:
                    held = sorted([row[0], row[1], row[2]] for row in rows)
                found.append({"case": case, "kind": kind, "records": records, "windows": held})
    lines = ",\n".join(json.dumps(item) for item in found)
    Path(__file__).with_name("flink_windows.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
