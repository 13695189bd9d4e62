"""The reference of errors, ``docs/errors.md``, from the catalogue."""

from __future__ import annotations

from itertools import groupby

from upsert_platform.core.error_catalogue import rows

_INTRODUCTION = """\
<!-- Written by: python -m upsert_platform.reference.markdown -->

# Errors

You can look up every message of the platform by the identifier at its end:

```sh
upsert-platform explain-error UP-1101
```

Identifiers stand in the output of commands, in the results of `validate` and `doctor`, in the descriptions of failed
steps and checks in Dagster, and in the state of continuous mode. They do not change between versions.
`upsert-platform explain-error topic deleted` lists the errors that have these words.
"""


def errors_page() -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    for group, found in groupby(rows().values(), lambda row: row.group):
        lines.append(f"## {group}\n")
        for row in found:
            lines += [
                f"### {row.id}: {row.title}\n",
                row.cause,
                f"\n**Remedy:** {row.remedy}\n",
                f"    {row.example}\n",
            ]
    return "\n".join(lines)
