"""Functions that users write in Python: their declaration beside the function, and as SQL names them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from upsert_platform.core.types import LogicalType, TypeSyntaxError, parse_type

SIGNATURE: Final = "upsert_platform_signature"
"""Attribute of a function: its `Signature`."""
ASIDE, STOPS = "user_udf_", "user_query_udf_"
"""How the names begin under which Spark knows such functions: those that give a reason for rows without a value, and
those that stop the query."""
_INSTALLED: Final = {"site-packages", "dist-packages", "upsert_platform"}
"""Folders of modules that are in the environment of workers."""
_PLAIN: Final = re.compile(r"[a-z0-9]")
_CALLED: Final = re.compile(rf"\b(?:{ASIDE}|{STOPS})[a-z0-9_]+(?=\()")
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a function: each of its arguments and its result is an Arrow array of such values.

    Attributes:
        result: of a table function, an ARRAY of the rows that a row gives.
        deterministic: the same arguments give the same value.
        table: a table function: its calls stand in ``LATERAL TABLE(...)``.
    """

    arguments: tuple[LogicalType, ...]
    result: LogicalType
    deterministic: bool = True
    table: bool = False


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of CREATE FUNCTION.

    Attributes:
        target: ``module.function``.
    """

    name: str
    target: str
    signature: Signature


def udf(*, result_type: str, arguments: Sequence[str], deterministic: bool = True) -> Callable[[_Function], _Function]:
    """Declare the types of a function that `CREATE FUNCTION ... LANGUAGE PYTHON` names.

    The function takes a pyarrow Array per argument and returns one of as many values, in the order of the rows.

    Args:
        result_type: a type of Flink SQL, such as ``DECIMAL(10, 2)``.
        arguments: one such type per argument; at least one.
        deterministic: False for a function that may give another value for the same arguments.

    Raises:
        ValueError: a type cannot be read, or there is no argument.

    Example:
        import pyarrow.compute as pc

        from upsert_platform import udf

        @udf(result_type="STRING", arguments=["STRING"])
        def shout(texts):
            return pc.utf8_upper(texts)
    """
    return _declared("udf", result_type, arguments, deterministic=deterministic, table=False)


def udtf(*, result_type: str, arguments: Sequence[str], deterministic: bool = True) -> Callable[[_Function], _Function]:
    """Declare the types of a table function, which gives any number of rows for a row.

    Statements call it as ``CROSS JOIN LATERAL TABLE(f(x)) AS t (a, b)``, or ``LEFT JOIN LATERAL TABLE(...) ON TRUE``.
    The function takes a pyarrow Array per argument and returns one list array with a list of rows per value; null or an
    empty list is no row.

    Args:
        result_type: type of one row: ``ROW<word STRING, length INT>``, whose names are those of the columns unless the
            statement names others, or the type of a single column.
        arguments: a type of Flink SQL per argument; at least one.
        deterministic: False for a function that may give other rows for the same arguments.

    Raises:
        ValueError: a type cannot be read, or there is no argument.

    Example:
        import pyarrow.compute as pc

        from upsert_platform import udtf

        @udtf(result_type="STRING", arguments=["STRING"])
        def words(texts):
            return pc.utf8_split_whitespace(texts)
    """
    return _declared("udtf", f"ARRAY<{result_type}>", arguments, deterministic=deterministic, table=True)


def _declared(
    decorator: str, result_type: str, arguments: Sequence[str], *, deterministic: bool, table: bool
) -> Callable[[_Function], _Function]:
    try:
        types = tuple(parse_type(text) for text in arguments)
        signature = Signature(types, parse_type(result_type), deterministic, table)
    except TypeSyntaxError as error:
        raise ValueError(f"{decorator}: {error}") from None
    if not signature.arguments:
        raise ValueError(f"{decorator}: a function takes one argument at least, which says how many values to give")

    def marked(function: _Function) -> _Function:
        setattr(function, SIGNATURE, signature)
        return function

    return marked


def spark_name(function: UserFunction, *, stops: bool) -> str:
    """Return the name of a function in Spark, which tells where the function is."""
    shown = "".join(item if _PLAIN.match(item) else f"_{ord(item):x}_" for item in function.target)
    return f"{STOPS if stops else ASIDE}{shown}"


def called_functions(text: str) -> dict[str, str]:
    """Return the names of such functions in Spark SQL with the ``module.function`` of each."""
    found = {}
    for name in _CALLED.findall(text):
        shown = name.removeprefix(STOPS) if name.startswith(STOPS) else name.removeprefix(ASIDE)
        found[name] = re.sub(r"_([0-9a-f]+)_", lambda match: chr(int(match[1], 16)), shown)
    return found


def is_below(module: ModuleType, folder: Path) -> bool:
    """Return whether a module was loaded from a folder."""
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve().is_relative_to(folder)


def modules_beside(module: ModuleType) -> list[ModuleType]:
    """Return the modules that were loaded from the folder of a module, itself among them, but for installed ones."""
    levels = module.__name__.count(".") + (1 if getattr(module, "__path__", None) else 0)
    folder = Path(module.__file__ or "").resolve().parents[levels]
    below = [item for item in list(sys.modules.values()) if is_below(item, folder)]
    return [item for item in below if not _INSTALLED & set(Path(item.__file__ or "").parts)]
