"""Checks that share a step: each yields its result, whatever another of them meets."""

from collections.abc import Iterator

import dagster as dg
import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.graph.check_parts import CheckPart, Evaluate, checks_in_one_step
from upsert_platform.graph.keys import AS_DECLARED
from upsert_platform.graph.resources import PlatformResource

_KEY = dg.AssetKey("users")


def _part(name: str, error: Exception | None = None, *, passed: bool = True, blocking: bool = False) -> CheckPart:
    def evaluate(_: dg.AssetCheckExecutionContext, __: PlatformResource) -> Iterator[dg.AssetCheckResult]:
        if error is not None:
            raise error
        yield dg.AssetCheckResult(check_name=name, asset_key=_KEY, passed=passed)

    checked: Evaluate = evaluate
    return CheckPart(dg.AssetCheckSpec(name, asset=_KEY, blocking=blocking), checked)


def _run(*parts: CheckPart, only: str | None = None) -> dg.ExecuteInProcessResult:
    checks = checks_in_one_step("checks_users", parts, AS_DECLARED)
    selection = dg.AssetSelection.checks(checks if only is None else dg.AssetCheckKey(_KEY, only))
    defs = dg.Definitions(
        asset_checks=[checks],
        jobs=[dg.define_asset_job("look", selection)],
        resources={"platform": dg.ResourceDefinition.hardcoded_resource(None)},
    )
    return defs.resolve_job_def("look").execute_in_process(raise_on_error=False)


def _verdicts(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {item.check_name: item.passed for item in result.get_asset_check_evaluations()}


def test_each_check_yields_in_one_step() -> None:
    result = _run(_part("a"), _part("b", passed=False), _part("c"))
    assert result.success
    assert _verdicts(result) == {"a": True, "b": False, "c": True}
    assert [event.step_key for event in result.get_step_success_events()] == ["checks_users"]


def test_checks_behind_one_that_cannot_be_evaluated_yield_and_the_step_fails_with_its_reason() -> None:
    result = _run(_part("a"), _part("b", EndpointError("server:9092 does not answer")), _part("c"))
    assert not result.success
    assert _verdicts(result) == {"a": True, "c": True}
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "server:9092 does not answer" in str(failure.step_failure_data.user_failure_data)


def test_of_several_that_cannot_be_evaluated_the_first_fails_the_step_and_the_log_has_the_others(
    capfd: pytest.CaptureFixture[str],
) -> None:
    result = _run(_part("a", EndpointError("the first")), _part("b", EndpointError("the second")), _part("c"))
    assert _verdicts(result) == {"c": True}
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    told = str(failure.step_failure_data.user_failure_data)
    assert "the first" in told and "the second" not in told
    assert "check 'b' failed, too: " in capfd.readouterr().err


def test_a_check_that_is_executed_alone_is_the_only_one_evaluated() -> None:
    result = _run(_part("a"), _part("b", EndpointError("not looked at")), only="a")
    assert result.success
    assert _verdicts(result) == {"a": True}
