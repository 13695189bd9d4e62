"""Asset check `quarantine_below`: warns of records in quarantine, and fails from a declared number or percentage on.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Iterator

import dagster as dg

from upsert_platform.changelog import rows
from upsert_platform.changelog.quarantine import NothingDecoded, discarded, nothing_decoded
from upsert_platform.changelog.replays import ACCOUNT_TOPIC
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.graph import keys
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.resources import PlatformResource
from upsert_platform.masking import Mask
from upsert_platform.model import Table
from upsert_platform.platform_options import platform_settings
from upsert_platform.source import Source


def quarantine_check(table: Table, names: AssetKeys = AS_DECLARED) -> dg.AssetChecksDefinition:
    """Looks at what is in quarantine now, whichever run put it there; blocks if that is declared. Needs no JVM.

    Where every record that was ever read is in quarantine, the step fails too: a run that leaves a table empty must not
    succeed.
    """
    key = names.changelog_key(table.name)
    blocking = platform_settings(table).quarantine_blocking

    @dg.multi_asset_check(
        name=names.op_name("quarantine", table.name),
        specs=[
            dg.AssetCheckSpec(
                keys.CHECK_QUARANTINE,
                asset=key,
                blocking=blocking,
                description="No record is in quarantine (a warning), not all of them (an error), and fewer than"
                " 'quarantine.fail-count' and 'quarantine.fail-percent' say, where they are declared (an error).",
            )
        ],
        can_subset=True,
    )
    @names.bound
    def check(platform: PlatformResource) -> Iterator[dg.AssetCheckResult]:
        with told_plainly():
            source = platform.sound().sources[table.name]
            store = platform.changelog(source)
            nothing = nothing_decoded(store, Mask.of(source.table))
            found = judged(source, store, nothing, key=key)
        yield found
        if nothing is not None and not blocking:  # Dagster fails the step of a check that blocks
            raise dg.Failure(description=found.description, allow_retries=False)

    return check


def judged(
    source: Source, store: ChangelogStore, nothing: NothingDecoded | None, *, key: dg.AssetKey
) -> dg.AssetCheckResult:
    """Return the check's result.

    Args:
        nothing: what is known of a changelog whose records were all quarantined.
    """
    quarantined = store.quarantined_count()
    if not quarantined and not store.read_arrow([rows.BATCH], kind=rows.KIND_REPLAYED, after=0, upto=None).num_rows:
        return dg.AssetCheckResult(
            check_name=keys.CHECK_QUARANTINE, asset_key=key, passed=True, metadata={"in_quarantine": 0}
        )
    head = store.head()
    accounts = store.accounts(after=0, upto=head.batch if head else 0)
    records = sum(item.records for ranges in accounts.values() for item in ranges if item.topic != ACCOUNT_TOPIC)
    reasons = []
    count, percent = source.quarantine_limits
    if count is not None and quarantined >= count:
        reasons.append(f"'quarantine.fail-count' = '{count}'")
    if percent is not None and quarantined * 100 >= percent * records:
        reasons.append(f"'quarantine.fail-percent' = '{percent}'")
    table, told = source.table.name, None
    if nothing is not None:
        told = nothing.told(table)
    elif quarantined:
        told = (
            f"{quarantined} of {records} records are in quarantine"
            f"{', reaching ' + ' and '.join(reasons) if reasons else ''}; 'upsert-platform quarantine list {table}'"
            f" tells why, 'quarantine replay {table}' tries them again, 'quarantine discard {table}' gives them up"
        )
    return dg.AssetCheckResult(
        check_name=keys.CHECK_QUARANTINE,
        asset_key=key,
        passed=not quarantined,
        severity=dg.AssetCheckSeverity.ERROR if reasons or nothing else dg.AssetCheckSeverity.WARN,
        metadata={"in_quarantine": quarantined, "records_read": records, "discarded": len(discarded(store))},
        description=told,
    )
