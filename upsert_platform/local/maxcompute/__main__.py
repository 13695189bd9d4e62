"""Command line of the local MaxCompute server."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from upsert_platform.local.maxcompute.app import App
from upsert_platform.local.maxcompute.control.faults import parse_rules
from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.http import Server
from upsert_platform.local.maxcompute.service import Service

SECRET_VARIABLE = "UPSERT_MAXCOMPUTE_ACCESS_KEY"


def arguments() -> argparse.ArgumentParser:
    """Return the argument parser of the command."""
    parser = argparse.ArgumentParser(prog="python -m upsert_platform.local.maxcompute", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds the tables")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port; the first line printed names it")
    parser.add_argument("--project", required=True)
    parser.add_argument("--access-id", required=True, help=f"the access key is read from {SECRET_VARIABLE}")
    parser.add_argument("--three-tier", action="store_true", help="projects have schemas by default")
    parser.add_argument("--drop", action="store_true", help="take writes and throw them away, for benchmarks")
    parser.add_argument("--strict-buckets", action="store_true", help="refuse rows in another bucket than their key's")
    parser.add_argument("--fault", action="append", default=[], help="a fault as JSON, or @file; may be repeated")
    parser.add_argument("--threads", type=int, default=2, help="threads of the query engine")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT; what was committed stays."""
    options = arguments().parse_args(argv)
    secret = os.environ.get(SECRET_VARIABLE)
    if not secret:
        print(f"{SECRET_VARIABLE} must be set: it is the access key that clients sign with", file=sys.stderr)  # noqa: T201
        return 2
    try:
        service = Service(
            options.data,
            project=options.project,
            access_id=options.access_id,
            secret=secret,
            three_tier=options.three_tier,
            threads=options.threads,
            drop=options.drop,
            strict_buckets=options.strict_buckets,
        )
    except OSError as error:
        print(f"--data {options.data}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    app = App(service)
    try:
        for text in options.fault:
            app.faults.add(parse_rules(Path(text[1:]).read_text() if text.startswith("@") else text))
    except (ServiceError, OSError) as error:
        print(f"--fault {text}: {error}", file=sys.stderr)  # noqa: T201
        service.close()
        return 2
    server = Server((options.host, options.port), app.handle)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="accept", daemon=True)
    thread.start()
    print(f"listening on http://{options.host}:{server.port}", flush=True)  # noqa: T201
    stop.wait()
    server.shutdown()
    server.close_connections()
    server.server_close()
    service.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
