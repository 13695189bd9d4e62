"""The plan of a continuous query: a tree of operators over changelogs, with names, types and keys.

Columns are known by names that are unique within an operator, also when letter case is ignored. A tree is data: `sql`
makes it of a statement, `queries` carries it out.
"""

from upsert_platform.core.plan.clock import clock, expression_at, form_at, now_in_milliseconds, text_at
from upsert_platform.core.plan.columns import (
    COLLECTS,
    Call,
    Closing,
    Expression,
    Field,
    Key,
    Keys,
    Native,
    Order,
    column,
)
from upsert_platform.core.plan.finals import Finals
from upsert_platform.core.plan.lookup import Lookup, LookupRows
from upsert_platform.core.plan.materialize import Materialize
from upsert_platform.core.plan.operators import (
    Aggregate,
    Arrivals,
    Constants,
    Expand,
    Filter,
    GroupJoin,
    Join,
    Merge,
    Node,
    OuterRows,
    Project,
    Query,
    Scan,
    Union,
    Watermark,
    Window,
    expressions,
    lets_go,
    scans,
)
from upsert_platform.core.plan.over import ARRIVED, Over, OverCall
from upsert_platform.core.plan.sessions import Session
from upsert_platform.core.plan.temporal import Temporal
from upsert_platform.core.plan.topn import ALL_ROWS, ArrivedTopN, TopN
from upsert_platform.core.plan.uniqueness import lacking, tells_apart
from upsert_platform.core.plan.unnest import Unnest
from upsert_platform.core.plan.window_ends import closing_ends

__all__ = [
    "ALL_ROWS",
    "ARRIVED",
    "COLLECTS",
    "Aggregate",
    "Arrivals",
    "ArrivedTopN",
    "Call",
    "Closing",
    "Constants",
    "Expand",
    "Expression",
    "Field",
    "Filter",
    "Finals",
    "GroupJoin",
    "Join",
    "Key",
    "Keys",
    "Lookup",
    "LookupRows",
    "Materialize",
    "Merge",
    "Native",
    "Node",
    "Order",
    "OuterRows",
    "Over",
    "OverCall",
    "Project",
    "Query",
    "Scan",
    "Session",
    "Temporal",
    "TopN",
    "Union",
    "Unnest",
    "Watermark",
    "Window",
    "clock",
    "closing_ends",
    "column",
    "expression_at",
    "expressions",
    "form_at",
    "lacking",
    "lets_go",
    "now_in_milliseconds",
    "scans",
    "tells_apart",
    "text_at",
]
