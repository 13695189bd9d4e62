"""Faults: rules that make chosen requests go wrong, before or after their work is done (spec 3.12)."""

from __future__ import annotations

import fnmatch
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from upsert_platform.local.maxcompute.control.operations import table_of
from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response

ACTIONS = ("answer", "answer-after", "drop", "drop-after", "redirect", "delay", "expire")
_NGINX = (
    "<html><head><title>502 Bad Gateway</title></head><body><h1>Sorry, the page you are looking for is currently"
    " unavailable.</h1><p>the page you are looking for is currently unavailable</p></body></html>"
)


@dataclass
class Fault:
    """One rule.

    Attributes:
        operation: a name from `operation_of`, ``*`` and ``?`` as in file names.
        action: ``answer`` instead of working; ``answer-after`` working; ``drop`` the connection before or
            ``drop-after`` working; ``redirect`` with 308; ``delay`` and work; ``expire`` the session and go on.
        table: only requests about this table.
        query: only requests with these parameters.
        skip: so many matching requests pass first.
        times: so many are hit; -1 means all.
        status, code, message, headers: of the answer; code ``html`` is a gateway's page.
        server: with ``redirect``, the header ``odps-tunnel-routed-server``.
        location: with ``redirect``, whether there is a ``Location`` to the same resource.
        seconds: of a delay.
    """

    operation: str
    action: str
    table: str = ""
    query: dict[str, str] = field(default_factory=dict)
    skip: int = 0
    times: int = 1
    status: int = 500
    code: str = "InternalServerError"
    message: str = "injected fault"
    headers: dict[str, str] = field(default_factory=dict)
    server: str = ""
    location: bool = False
    seconds: float = 0.0
    hits: int = 0

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Fault:
        """Reads a rule.

        Raises:
            ServiceError: it has an unknown field, or lacks operation or action.
        """
        known = set(Fault.__dataclass_fields__) - {"hits"}
        unknown = set(raw) - known
        if unknown:
            raise invalid_argument(
                f"a fault has no field {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}"
            )
        if not raw.get("operation") or raw.get("action") not in ACTIONS:
            raise invalid_argument(f"a fault needs an operation and an action of {', '.join(ACTIONS)}")
        return Fault(**raw)

    def matches(self, request: Request, operation: str) -> bool:
        """Return whether the rule is about this request, whatever its counts."""
        return (
            fnmatch.fnmatchcase(operation, self.operation)
            and (not self.table or self.table.lower() == table_of(request))
            and all(request.query.get(name) == value for name, value in self.query.items())
        )


class Faults:
    """The rules in force, applied in the order in which they were given; one per request."""

    def __init__(self, expire: Callable[[str], None]) -> None:
        self._expire = expire
        self._lock = threading.Lock()
        self._rules: list[Fault] = []

    def add(self, rules: list[Fault]) -> None:
        with self._lock:
            self._rules += rules

    def clear(self) -> None:
        with self._lock:
            self._rules = []

    def listed(self) -> list[dict[str, Any]]:
        """The rules with how often each was hit."""
        with self._lock:
            return [dict(vars(rule)) for rule in self._rules]

    def chosen(self, request: Request, operation: str) -> Fault | None:
        """The rule that hits this request, counted."""
        with self._lock:
            for rule in self._rules:
                if not rule.matches(request, operation):
                    continue
                if rule.skip > 0:
                    rule.skip -= 1
                    continue
                if rule.times == 0:
                    continue
                rule.times -= rule.times > 0
                rule.hits += 1
                return rule
        return None

    def run(self, rule: Fault, request: Request, work: Callable[[Request], Response]) -> Response:
        """Answers a request that a rule hits."""
        match rule.action:
            case "answer":
                return _answer(rule, request)
            case "answer-after":
                work(request)
                return _answer(rule, request)
            case "drop":
                return Response(drop=True)
            case "drop-after":
                work(request)
                return Response(drop=True)
            case "redirect":
                headers = {"odps-tunnel-routed-server": rule.server} if rule.server else {}
                if rule.location:
                    headers["Location"] = f"http://{rule.server or request.host}{request.target}"
                return Response(308, b"", headers)
            case "expire":
                for name in ("upsertid", "uploadid", "SessionId"):
                    if name in request.query:
                        self._expire(request.query[name])
        time.sleep(rule.seconds)
        return work(request)


def _answer(rule: Fault, request: Request) -> Response:
    if rule.code == "html":
        return Response(rule.status, _NGINX.encode(), {"Content-Type": "text/html", **rule.headers})
    if 200 <= rule.status < 400:
        return Response(rule.status, b"{}", dict(rule.headers))
    raise ServiceError(rule.status, rule.code, rule.message, dict(rule.headers))


def parse_rules(text: str | bytes) -> list[Fault]:
    """Reads one rule, or a list of them, from JSON.

    Raises:
        ServiceError: the text is not JSON, or a rule is malformed.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise invalid_argument(f"faults must be JSON: {error}") from error
    return [Fault.from_json(item) for item in (raw if isinstance(raw, list) else [raw])]
