"""What a run shows on the console: results, one a line, and never less than what went wrong."""

import re
from typing import Any

import dagster as dg
import pytest

from upsert_platform.core.errors import DestinationError
from upsert_platform.graph import checks, console
from upsert_platform.graph.failures import told_plainly
from upsert_platform.sync.comparison import Comparison

LINE = re.compile(r"^\d\d:\d\d:\d\d (\S+)  (.+)$")


def _run(
    capsys: pytest.CaptureFixture[str],
    *,
    fails: Exception | None = None,
    config: dict[str, Any] | None = None,
    blocking: bool = False,
) -> list[str]:
    """Runs an asset with a check by the console; its lines without the time."""

    @dg.asset(key=["tables", "users"])
    def users(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        context.log.info("3 batches to apply")
        context.log.debug("not for everybody")
        context.log.warning("the topic was widened")
        with told_plainly():
            if fails is not None:
                raise fails
        return dg.MaterializeResult(metadata={"deletes": 2, "upserts": 5, "seconds": 1.5})

    @dg.asset_check(asset=users, name="last_value_per_key", blocking=blocking)
    def check() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, metadata={"missing": 1}, description="look at the sample")

    job = dg.define_asset_job("sync", executor_def=dg.in_process_executor, config=config or dict(console.RUN_CONFIG))
    definitions = dg.Definitions(
        assets=[users], asset_checks=[check], jobs=[job], loggers={console.CONSOLE: console.console}
    )
    definitions.resolve_job_def("sync").execute_in_process(raise_on_error=False)
    captured = capsys.readouterr()
    assert captured.out == ""
    return [f"{found[1]}: {found[2]}" for line in captured.err.splitlines() if (found := LINE.match(line))]


def test_results_warnings_and_verdicts_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys) == [
        "tables__users: 3 batches to apply",
        "tables__users: warning: the topic was widened",
        "tables__users: done (upserts 5, deletes 2)",
        "tables__users_last_value_per_key: last_value_per_key FAILED (missing 1): look at the sample",
        "sync: succeeded",
    ]


def test_check_that_fails_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _run(capsys, blocking=True)
    assert lines[-2].endswith("last_value_per_key FAILED (missing 1): look at the sample")
    assert lines[-1].startswith("sync: failed: Execution of run")
    assert not any("DagsterAssetCheckFailedError" in line for line in lines)


def test_failure_is_told_by_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _run(capsys, fails=DestinationError("table 'users' is being written by run 7"))
    assert any(line.startswith("tables__users: failed: table 'users' is being written by run 7 [UP-") for line in lines)
    assert lines[-1].startswith("sync: failed: ")
    assert "tables__users: failed: KeyError: 'a defect'" in _run(capsys, fails=KeyError("a defect"))


@pytest.mark.parametrize(
    ("fails", "blocking", "reason"),
    [
        (DestinationError("table 'users' is being written by run 7"), False, "tables__users: failed: table 'users' is"),
        (None, True, "tables__users_last_value_per_key: last_value_per_key FAILED (missing 1): look at the sample"),
    ],
    ids=["a step", "a check"],
)
def test_the_end_of_a_failed_run_repeats_why(
    capsys: pytest.CaptureFixture[str], fails: Exception | None, blocking: bool, reason: str
) -> None:
    """What is written while steps run may not reach the console; the end of the run, written later, does."""
    written: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(console.ConsoleFormatter, "format", _kept(console.ConsoleFormatter.format, written))
        _run(capsys, fails=fails, blocking=blocking)
    end = next(line for line in written if "Execution of run" in line)
    assert f"\n    {reason}" in end


def test_the_end_leaves_reasons_to_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _run(capsys, fails=DestinationError("the table is busy"), config=dict(console.SUMMARISED))
    told = capsys.readouterr().err
    assert sum("the table is busy" in line for line in [*lines, *told.splitlines()]) == 1


def test_step_that_fails_for_its_check_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    @dg.asset_check(asset=dg.AssetKey("users"), name="whole")
    def whole() -> Any:
        yield dg.AssetCheckResult(passed=False, description="none of its records can be read")
        raise dg.Failure(description="none of its records can be read")

    @dg.asset
    def users() -> None:
        """A table."""

    job = dg.define_asset_job("sync", executor_def=dg.in_process_executor, config=dict(console.SUMMARISED))
    definitions = dg.Definitions(
        assets=[users], asset_checks=[whole], jobs=[job], loggers={console.CONSOLE: console.console}
    )
    definitions.resolve_job_def("sync").execute_in_process(raise_on_error=False)
    assert capsys.readouterr().err.count("none of its records can be read") == 1


def _kept(form: Any, written: list[str]) -> Any:
    def format_and_keep(self: console.ConsoleFormatter, record: Any) -> str:
        written.append(form(self, record))
        return written[-1]

    return format_and_keep


def test_debug_shows_every_event(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _run(capsys, config={"loggers": {"console": {"config": {"log_level": "DEBUG"}}}})
    assert any(line.startswith("tables__users: STEP_START ") for line in lines)
    assert any(line.startswith("tables__users: STEP_SUCCESS ") for line in lines)
    assert "tables__users: not for everybody" in lines


def test_check_that_fails_names_a_row_that_differs() -> None:
    sample = {"status": "stale", "key": "user_id=5", "difference": "name: expected 'a', found 'b'"}
    found = Comparison(1, False, 3, 0, 0, 1, 0, (sample,))
    assert checks._example(found) == "for example user_id=5 is stale: name: expected 'a', found 'b'"
    missing = Comparison(1, False, 3, 1, 0, 0, 0, ({**sample, "status": "missing", "difference": ""},))
    assert checks._example(missing) == "for example user_id=5 is missing"
    assert checks._example(Comparison(1, False, 3, 2, 0, 1, 0, ())) == "missing 2, extra 0, stale 1"


def test_an_asset_of_ones_own_tells_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    @dg.asset
    def scores() -> dg.MaterializeResult[Any]:
        table = dg.MetadataValue.md("| a |\n| - |")
        return dg.MaterializeResult(metadata={"rows": 7, "mean": 0.5, "dagster/uri": "x", "note": "a\nb", "t": table})

    @dg.asset
    def plain() -> None:
        """Tells nothing."""

    config = dict(console.RUN_CONFIG)
    job = dg.define_asset_job("own", executor_def=dg.in_process_executor, config=config)
    definitions = dg.Definitions(assets=[scores, plain], jobs=[job], loggers={console.CONSOLE: console.console})
    definitions.resolve_job_def("own").execute_in_process()
    lines = [found.groups() for line in capsys.readouterr().err.splitlines() if (found := LINE.match(line))]
    assert sorted(lines) == [
        ("own", "succeeded"), ("plain", "done"), ("scores", "done (rows 7, mean 0.5, note a, t | a |)"),
    ]  # fmt: skip


def test_steps_of_one_reason_are_one_line() -> None:
    reasons = {"a": "failed: no Java", "b": "failed: the disk is full", "c": "failed: no Java"}
    assert console.joined_by_reason(reasons) == {"a, c": "failed: no Java", "b": "failed: the disk is full"}
