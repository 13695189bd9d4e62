"""Instances over REST: submit, poll, and read the result (spec 3.4)."""

from __future__ import annotations

import base64
import json
import xml.etree.ElementTree as ElementTree
from functools import partial

from upsert_platform.local.maxcompute.errors import invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.rest.csv import to_csv
from upsert_platform.local.maxcompute.rest.runner import Instance
from upsert_platform.local.maxcompute.rest.xml import Literal, answer, http_date
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.sql.run import apply_setting, run_sql

_BLOCKING_SECONDS = 5.0
_RESULT_ROWS = 10_000


def submit(service: Service, request: Request) -> Response:
    """``POST /projects/P/instances``: runs the job's SQL task, or its merge task, which is a compaction."""
    try:
        root = ElementTree.fromstring(request.body)
    except ElementTree.ParseError as error:
        raise invalid_argument(f"the job is not XML: {error}") from error
    job = root if root.tag == "Job" else root.find("Job")
    tasks = job.find("Tasks") if job is not None else None
    if job is None or tasks is None or len(tasks) != 1 or tasks[0].tag not in ("SQL", "Merge"):
        found = ", ".join(task.tag for task in tasks) if tasks is not None else "none"
        raise invalid_argument(f"a job must have exactly one SQL or Merge task; found: {found}")
    task = tasks[0]
    hints = _hints(task)
    query = _compaction(task, hints) if task.tag == "Merge" else task.findtext("Query") or ""
    name = task.findtext("Name") or "AnonymousSQLTask"
    context = service.context(schema=request.query.get("curr_schema") or "default")
    for hint, value in hints.items():
        context = apply_setting(context, hint, str(value))
    priority = int(job.findtext("Priority") or 9)
    source = ElementTree.tostring(job, encoding="unicode")
    instance = service.runner.submit(name, query, source, priority, task.tag, partial(run_sql, context, query))
    location = f"http://{request.host}/projects/{service.project}/instances/{instance.instance_id}"
    return Response(201, b"", {"Location": location})


def _compaction(task: ElementTree.Element, hints: dict[str, object]) -> str:
    """The statement that a merge task stands for.

    Raises:
        ServiceError: the task archives or freezes, which this server does not do.
    """
    archives = any(item.findtext("Name") == "archiveSettings" for item in task.iter("Property"))
    if archives or "odps.merge.cold.storage.mode" in hints:
        raise invalid_argument("archiving and freezing are not supported by this server")
    kind = "MAJOR" if hints.get("odps.merge.txn.table.compact") == "major_compact" else "MINOR"
    return f"ALTER TABLE {task.findtext('TableName') or ''} COMPACT {kind}"


def _hints(task: ElementTree.Element) -> dict[str, object]:
    for item in task.iter("Property"):
        if item.findtext("Name") == "settings":
            return dict(json.loads(item.findtext("Value") or "{}"))
    return {}


def get_instance(service: Service, request: Request, instance_id: str) -> Response:
    """``GET /projects/P/instances/I``, plain or with ``instancestatus``, ``taskstatus``, ``source``, ``result``."""
    instance = service.runner.get(instance_id)
    query = request.query
    if "taskstatus" in query:
        return _task_status(instance)
    if "source" in query:
        return Response(200, instance.source.encode(), {"Content-Type": "application/xml"})
    if "result" in query:
        return _result(instance)
    if "instanceprogress" in query:
        return _progress(instance)
    if "instancequota" in query:
        return Response(200, b"{}", {"Content-Type": "application/json"})
    if "instancesummary" in query:
        body = json.dumps({"Instance": {"JsonSummary": "{}", "Summary": ""}})
        return Response(200, body.encode(), {"Content-Type": "application/json", "x-odps-task-finalized": "true"})
    if "cached" in query:
        body = json.dumps({"instanceId": instance.instance_id, "status": instance.status})
        return Response(200, body.encode(), {"Content-Type": "application/json"})
    if "info" in query:
        return Response(200, json.dumps({"warnings": []}).encode(), {"Content-Type": "application/json"})
    if "instancestatus" in query:
        instance.done.wait(_BLOCKING_SECONDS)
    headers = {
        "x-odps-start-time": http_date(instance.started),
        "x-odps-end-time": http_date(instance.ended) if instance.ended is not None else "",
        "x-odps-owner": service.owner,
    }
    return answer(("Instance", [("Status", instance.status)]), headers=headers)


def list_instances(service: Service, request: Request) -> Response:
    """``GET /projects/P/instances``, newest first."""
    wanted = request.query.get("status")
    nodes = [
        (
            "Instance",
            [
                ("Name", instance.instance_id),
                ("Owner", service.owner),
                ("StartTime", http_date(instance.started)),
                ("EndTime", http_date(instance.ended) if instance.ended else ""),
                ("Status", instance.status),
            ],
        )
        for instance in reversed(service.runner.recent())
        if wanted in (None, instance.status)
    ]
    return answer(("Instances", [("Marker", ""), ("MaxItems", str(len(nodes))), *nodes]))


def stop(service: Service, request: Request, instance_id: str) -> Response:
    """``PUT /projects/P/instances/I``: a statement that runs is let run to its end."""
    service.runner.get(instance_id)
    return Response(200)


def _task_status(instance: Instance) -> Response:
    task = [
        ("Name", instance.task_name),
        ("StartTime", http_date(instance.started)),
        ("EndTime", http_date(instance.ended) if instance.ended else ""),
        ("Status", instance.task_status),
        ("Histories", ""),
    ]
    return answer(
        ("Instance", [("Status", instance.status), ("Tasks", [("Task", task, {"Type": instance.task_type})])])
    )


def _progress(instance: Instance) -> Response:
    """One stage with one worker, which runs or has ended."""
    done = instance.done.is_set()
    rows = instance.result.affected if instance.result is not None else 0
    stage = [
        ("BackupWorkers", "0"),
        ("TerminatedWorkers", str(int(done))),
        ("RunningWorkers", str(int(not done))),
        ("TotalWorkers", "1"),
        ("InputRecords", "0"),
        ("OutputRecords", str(rows)),
        ("FinishedPercentage", "100" if done else "0"),
    ]
    return answer(("Progress", [("Stage", stage, {"ID": "M1_job_0"})]))


def _result(instance: Instance) -> Response:
    instance.done.wait()
    if instance.error is not None:
        content, attributes = Literal(instance.failure), {"Format": "text"}
    else:
        assert instance.result is not None
        result = instance.result
        if result.rows is not None:
            text = to_csv(result.rows.slice(0, _RESULT_ROWS), result.columns)
            content = Literal(base64.b64encode(text.encode()).decode())
            attributes = {"Transform": "Base64", "Format": "csv"}
        else:
            content, attributes = Literal(result.text), {"Format": "text"}
    task = [("Name", instance.task_name), ("Result", content, attributes), ("Status", instance.task_status)]
    return answer(("Instance", [("Tasks", [("Task", task, {"Type": instance.task_type})])]))
