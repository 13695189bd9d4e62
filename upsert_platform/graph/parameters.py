"""Functions whose parameters have other names: Dagster finds a resource by the name of the parameter that takes it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def rename_parameters(function: F, names: Mapping[str, str]) -> F:
    """The function, called with other names for some of its parameters.

    Args:
        names: parameter to the name that callers use; those that it does not have are passed over.
    """
    signature = inspect.signature(function)
    own = {new: old for old, new in names.items() if old in signature.parameters and old != new}
    if not own:
        return function

    def meant(given: Mapping[str, Any]) -> dict[str, Any]:
        return {own.get(name, name): value for name, value in given.items()}

    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def renamed(*args: Any, **given: Any) -> Iterator[Any]:
            yield from function(*args, **meant(given))
    else:

        @functools.wraps(function)
        def renamed(*args: Any, **given: Any) -> Any:
            return function(*args, **meant(given))

    found: Any = renamed
    # Or whoever looks for annotations would find those of the function.
    del found.__wrapped__
    parameters = [item.replace(name=names.get(item.name, item.name)) for item in signature.parameters.values()]
    found.__signature__ = signature.replace(parameters=parameters)
    found.__annotations__ = {names.get(name, name): value for name, value in function.__annotations__.items()}
    return cast("F", found)
