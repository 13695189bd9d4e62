"""The plan of a continuous query: a tree of operators over changelogs, with names, types and keys.

Columns are known by names that are unique within an operator, also when letter case is ignored. A tree is data: `sql`
makes it of a statement, `queries` carries it out.
"""

from upsert_platform.plan.columns import Call, Closing, Expression, Field, Keys, Native, Order, column
from upsert_platform.plan.lookup import Lookup
from upsert_platform.plan.materialize import Materialize
from upsert_platform.plan.operators import (
    Aggregate,
    Arrivals,
    Expand,
    Filter,
    GroupJoin,
    Join,
    Merge,
    Node,
    Project,
    Query,
    Scan,
    Union,
    Window,
    expressions,
    scans,
)
from upsert_platform.plan.over import Over, OverCall
from upsert_platform.plan.sessions import Session
from upsert_platform.plan.temporal import Temporal
from upsert_platform.plan.topn import ArrivedTopN, TopN
from upsert_platform.plan.uniqueness import lacking, tells_apart
from upsert_platform.plan.unnest import Unnest

__all__ = [
    "Aggregate",
    "Arrivals",
    "ArrivedTopN",
    "Call",
    "Closing",
    "Expand",
    "Expression",
    "Field",
    "Filter",
    "GroupJoin",
    "Join",
    "Keys",
    "Lookup",
    "Materialize",
    "Merge",
    "Native",
    "Node",
    "Order",
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
    "Window",
    "column",
    "expressions",
    "lacking",
    "scans",
    "tells_apart",
]
