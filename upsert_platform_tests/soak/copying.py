"""A process that copies a topic through the changelog to another topic, again and again.

Run as a process, with the environment of a stack. Argument: `once` to end when everything is copied, or `forever`.
Its Spark session is its own, or that of another process (`attached.py`).
"""

from __future__ import annotations

import sys
import time
import uuid

from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform_tests.soak.attached import attach


def main(*, once: bool) -> None:
    """Runs both hops in turn, as a sync does, and says before each what comes."""
    from upsert_platform.spark.session import open_session, prepare_environment

    platform = PlatformResource(kafka=KafkaResource(), tablestore=TablestoreResource(), maxcompute=MaxComputeResource())
    prepare_environment()
    shared = attach()
    spark = shared or open_session()
    run = f"soak-{uuid.uuid4().hex[:8]}"
    while True:
        changelog = platform.changelog_hop("users", run=run)
        plan = changelog.plan()
        if plan.backlog:
            print("changelog", plan.lag, flush=True)  # noqa: T201
            changelog.execute(OnDemand.dividing(spark), plan)
        copy = platform.destination_hop("users_copy", run=run)
        try:
            behind = copy.plan().behind
            if behind:
                print("copy", behind, flush=True)  # noqa: T201
                copy.execute(OnDemand.dividing(spark), copy.plan())
            elif once:
                break
        finally:
            copy.destination.close()
        time.sleep(0.05)
    if shared is None:
        spark.stop()


if __name__ == "__main__":
    main(once=sys.argv[1] == "once")
