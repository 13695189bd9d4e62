"""Values of the resources of endpoints, such as `kafka`: where the systems of tables are.

A table takes each option that it does not declare from the resource of its connector. The resource takes each value
that it is not given from a variable: of the environment, of ``variables.yaml``, or of the local servers. A value that a
resource is given is also the value of that variable wherever a declaration names it, so a run that is launched with
other servers reaches them either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from upsert_platform.changelog.lake import home, local_variables
from upsert_platform.core.connector import EndpointValue
from upsert_platform.sql.variables import Variables, load_variables
from upsert_platform.sync.connectors import CONNECTORS, by_endpoint

ENDPOINT_VALUES: Final[Mapping[str, tuple[EndpointValue, ...]]] = {
    connector.endpoint: connector.endpoint_values for connector in CONNECTORS.values() if connector.endpoint_values
}
"""Resource to its values."""
_OTHER_CREDENTIALS: Final = frozenset(
    ("tablestore.auth.mode", "tablestore.sts.token", "account.id", "role.name", "odps.sts.token", "sts-token")
)
"""Options that say where credentials come from: beside one of them none is added."""
_CREDENTIALS: Final = frozenset(
    value.option for values in ENDPOINT_VALUES.values() for value in values if value.credential
)


@dataclass(frozen=True, repr=False)
class Endpoints:
    """The values given by endpoint resources.

    Attributes:
        values: resource to field to value; fields without one are left out.
        options: resource to further options of its tables.
    """

    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Endpoints({', '.join(sorted({*self.values, *self.options}))})"

    def variables(self) -> dict[str, str]:
        """Variable to the value that a resource is given for it."""
        return {
            item.variable: self.values[name][item.field]
            for name, items in ENDPOINT_VALUES.items()
            for item in items
            if item.field in self.values.get(name, {})
        }

    def defaults(self, variables: Variables) -> dict[str, Mapping[str, str]]:
        """Connector to the options that complete its tables.

        Args:
            variables: of the project, for values that no resource is given.
        """
        return by_endpoint({name: self._options(name, variables) for name in ENDPOINT_VALUES})

    def _options(self, name: str, variables: Variables) -> dict[str, str]:
        items, values = ENDPOINT_VALUES[name], self.values.get(name, {})
        given = {
            **self.options.get(name, {}),
            **{item.option: values[item.field] for item in items if item.field in values},
        }
        found = {item.option: value for item in items if (value := variables.get(item.variable))}
        return {**completing(found, given), **given}


def completing(defaults: Mapping[str, str], declared: Iterable[str]) -> dict[str, str]:
    """The options of `defaults` that complete a declaration: credentials only where it declares none.

    Args:
        declared: names of its options.
    """
    names = set(declared)
    left = set() if names.isdisjoint(_CREDENTIALS | _OTHER_CREDENTIALS) else _CREDENTIALS
    return {name: value for name, value in defaults.items() if name not in names and name not in left}


def project_variables(project: Path, *, root: str | None = None, given: Mapping[str, str] | None = None) -> Variables:
    """The variables of a project folder.

    Args:
        root: of the lake, beside which the local servers' variables lie.
        given: variables that win over those of the environment.
    """
    found, _ = load_variables(project, local_variables(root or home()), given=given)
    return found
