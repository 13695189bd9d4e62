"""Calls Java functions on thousands of values at once: a call over the gateway for each would take minutes.

Functions are method handles; a Java stream maps a whole list of texts through a chain of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from upsert_platform_tests.interop.java import Java

SEPARATOR = "\x1f"
"""Stands between values on their way; no value may hold it."""


class Bulk:
    """Functions of one JVM."""

    def __init__(self, java: Java) -> None:
        self._java = java
        self._classes = java.classes
        self._handles = java.classes.java.lang.invoke.MethodHandles
        self._lookup = self._handles.publicLookup()

    def static(self, owner: str, name: str, returns: str, *parameters: str) -> Any:
        """A static method; types are full class names, or ``int`` and ``long``."""
        return self._lookup.findStatic(self.type(owner), name, self._signature(returns, parameters))

    def virtual(self, owner: str, name: str, returns: str, *parameters: str) -> Any:
        """A method; its object is the first parameter."""
        return self._lookup.findVirtual(self.type(owner), name, self._signature(returns, parameters))

    def constructor(self, owner: str, *parameters: str) -> Any:
        """Makes an object."""
        return self._lookup.findConstructor(self.type(owner), self._signature("void", parameters))

    def bind(self, handle: Any, position: int, *values: Any) -> Any:
        """A function with some of its parameters given."""
        objects = self._java.array_of(self._classes.java.lang.Object, values)
        return self._handles.insertArguments(handle, position, objects)

    def map(self, values: Sequence[str], *steps: Any) -> list[str]:
        """Every value through all steps, each of which takes what the one before gives; results as texts."""
        text = self._classes.java.lang.StringBuilder(SEPARATOR.join([*values, "end"]))  # an empty last one would vanish
        stream = self._classes.java.util.regex.Pattern.compile(SEPARATOR).splitAsStream(text).limit(len(values))
        for step in steps:
            stream = stream.map(self._function(step))
        as_text = self.static("java.lang.String", "valueOf", "java.lang.String", "java.lang.Object")
        joined = stream.map(self._function(as_text)).collect(
            self._classes.java.util.stream.Collectors.joining(SEPARATOR)
        )
        found: list[str] = joined.split(SEPARATOR)
        assert len(found) == len(values)
        return found

    def type(self, name: str) -> Any:
        """A class object."""
        match name:
            case "int":
                return self._classes.java.lang.Integer.TYPE
            case "long":
                return self._classes.java.lang.Long.TYPE
            case "void":
                return self._classes.java.lang.Void.TYPE
        return self._classes.java.lang.Class.forName(name)

    def _signature(self, returns: str, parameters: Sequence[str]) -> Any:
        types = self._java.list_of(map(self.type, parameters))
        return self._classes.java.lang.invoke.MethodType.methodType(self.type(returns), types)

    def _function(self, handle: Any) -> Any:
        whatever = self._classes.java.lang.invoke.MethodType.genericMethodType(1)
        function = self.type("java.util.function.Function")
        return self._classes.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(function, handle.asType(whatever))
