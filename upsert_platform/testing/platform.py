"""Resources of a project under test.

Annotations are evaluated here: Dagster reads those of resources as objects.
"""

from typing import Any

import dagster as dg
from pydantic import PrivateAttr

from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.sync.binding import Binding, bind, load
from upsert_platform.sync.stand_ins import unset_value, without_places
from upsert_platform.testing.memory import MemorySystems, ask_nobody, in_memory


class MemoryPlatform(PlatformResource):
    """The platform's resource, with topics and tables that the test holds."""

    _systems: Any = PrivateAttr(default=None)

    @property
    def has_servers(self) -> bool:
        """Return False: what proves tables has nobody to ask."""
        return False

    def _bound(self) -> Binding:
        lake = self.lake
        project, problems = load(
            self._folder, root=lake.root, endpoints=self.endpoints(), lake=lake, unset=unset_value, ask=ask_nobody
        )
        return in_memory(bind(without_places(project), problems, defaults=self.defaults()), self._systems)


def holding(systems: MemorySystems) -> type[MemoryPlatform]:
    """The resource's class for one test: Dagster makes a new object of it for each run."""
    body = {
        "__module__": __name__,
        "__doc__": MemoryPlatform.__doc__,
        "__annotations__": {"_systems": Any},
        "_systems": PrivateAttr(default_factory=lambda: systems),
    }
    return type("MemoryPlatform", (MemoryPlatform,), body)


class LastingSpark(SparkResource):
    """A Spark resource whose session serves the next test too: it ends with the process."""

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Leaves the session open."""
