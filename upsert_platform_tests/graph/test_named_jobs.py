"""Messages name jobs of the user's own code location."""

from __future__ import annotations

import re
from pathlib import Path

from upsert_platform.core.platform_options import Severity
from upsert_platform.core.source import Unread
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.checks import repair_remedy
from upsert_platform.graph.keys import AssetKeys
from upsert_platform.graph.loss_check import judged
from upsert_platform.sync.binding import load
from upsert_platform_tests.graph.test_instances import project

ON = "'topic' = 'users_copy', 'check.equals-topic' = 'error', 'check.equals-source' = 'error',"


def test_jobs_that_messages_name_are_jobs_of_the_instance(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(project("users").replace("'topic' = 'users_copy',", ON))
    found, problems = load(tmp_path)
    assert not [item for item in problems if item.severity == "error"], problems
    definitions = build_definitions(found, instance="crm")
    jobs = {job.name for job in definitions.get_repository_def().get_all_jobs()}
    names = AssetKeys(instance="crm")
    unread = Unread("users", 0, lost=1)
    lost = judged(names.changelog_key("users"), [unread], names, at_most=Severity.ERROR)
    messages = [repair_remedy(names), str(lost.description)]
    graph = definitions.resolve_asset_graph()
    messages += [str(graph.get_check_spec(key).description) for key in graph.asset_check_keys]
    named = {
        name
        for text in messages
        for name in (*re.findall(r"[Jj]ob ['`](\w+)['`]", text), *re.findall(r"upsert-platform run (\w+)", text))
    }
    assert {"sync_crm", "reconcile_crm", "verify_crm", "audit_crm", "prove_crm"} <= named
    assert named <= jobs
