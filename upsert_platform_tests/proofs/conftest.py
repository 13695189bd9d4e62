"""Servers and projects, as tests of the graph have them."""

from upsert_platform_tests.graph.conftest import make_stack, stack, variables

__all__ = ["make_stack", "stack", "variables"]
