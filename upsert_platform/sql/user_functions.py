"""CREATE FUNCTION ... LANGUAGE PYTHON: finds the functions of a project, and writes their calls in Spark SQL."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final

from upsert_platform.core.errors import Problem
from upsert_platform.core.types import LogicalType
from upsert_platform.core.user_functions import SIGNATURE, Signature, UserFunction, is_below, spark_name
from upsert_platform.sql.casts import cast
from upsert_platform.sql.declarations import FunctionDeclaration
from upsert_platform.sql.functions.signatures import FunctionFault
from upsert_platform.sql.reader import Fault, TokenReader
from upsert_platform.sql.rendered import NUMBERS, STRINGS, Rendered, made, nullable, same_type

_TARGET: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_DECLARED: ContextVar[Mapping[str, UserFunction]] = ContextVar("user functions", default=MappingProxyType({}))
_WRITE: Final = "write CREATE FUNCTION f AS 'module.function' LANGUAGE PYTHON"


def read_create_function(reader: TokenReader) -> FunctionDeclaration:
    """Reads ``CREATE [TEMPORARY] FUNCTION [IF NOT EXISTS] f AS 'module.function' LANGUAGE PYTHON``.

    Raises:
        Fault: it is not written so.
    """
    location = reader.location
    reader.accept("CREATE")
    reader.accept("TEMPORARY")
    reader.expect("FUNCTION", where="after CREATE")
    reader.accept("IF", "NOT", "EXISTS")
    name = reader.name_parts("function name")[-1]  # calls have the last part alone
    reader.expect("AS", where="before the module and function")
    target = reader.text("'module.function'")
    if not (reader.accept("LANGUAGE", "PYTHON") and reader.at_end()):
        raise Fault(f"CREATE FUNCTION {name}: functions are written in Python: {_WRITE}", location.line or 0)
    if not _TARGET.fullmatch(target):
        raise Fault(f"CREATE FUNCTION {name}: '{target}' is no module and function: {_WRITE}", location.line or 0)
    return FunctionDeclaration(name, location, target)


def find_functions(declared: Sequence[FunctionDeclaration]) -> tuple[dict[str, UserFunction], list[Problem]]:
    """Return the functions that are declared, by their names in capitals, and what is wrong with others.

    A module is looked for in the folder of the file that declares the function, then among what is installed.
    """
    found: dict[str, UserFunction] = {}
    problems: list[Problem] = []
    for item in declared:
        upper = item.name.upper()
        try:
            if upper in found:
                raise FunctionFault("is declared twice; rename one")
            found[upper] = UserFunction(item.name, item.target, _signature(item))
        except FunctionFault as fault:
            problems.append(Problem(f"CREATE FUNCTION {item.name}: {fault}", item.location))
    return found, problems


def _signature(item: FunctionDeclaration) -> Signature:
    module_name, _, attribute = item.target.rpartition(".")
    module = _module(module_name, Path(item.location.file).resolve().parent)
    function = getattr(module, attribute, None)
    signature: Signature | None = getattr(function, SIGNATURE, None)
    if not callable(function):
        raise FunctionFault(f"module '{module_name}' has no function '{attribute}'")
    if signature is None:
        raise FunctionFault(
            f"'{item.target}' does not declare its types: put @upsert_platform.udf(result_type='STRING',"
            " arguments=['STRING']) above it, or @upsert_platform.udtf for a table function"
        )
    try:
        inspect.signature(function).bind(*signature.arguments)
    except TypeError:
        raise FunctionFault(
            f"'{item.target}' does not take {len(signature.arguments)} arguments, which it declares"
        ) from None
    return signature


def _module(name: str, folder: Path) -> ModuleType:
    root = name.partition(".")[0]
    own = (folder / f"{root}.py").is_file() or (folder / root).is_dir()
    known = sys.modules.get(name)
    if known is not None and own and not is_below(known, folder):
        raise FunctionFault(f"another module '{name}' is loaded from {known.__file__}; rename the project's")
    if own:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - what a module does when it is imported is the user's own
        raise FunctionFault(
            f"module '{name}' cannot be imported ({type(error).__name__}: {error}); it belongs into {folder}"
        ) from None
    finally:
        if own:
            sys.path.remove(str(folder))


@contextmanager
def declared_functions(functions: Mapping[str, UserFunction]) -> Iterator[None]:
    """Lets the expressions that are read meanwhile call these functions."""
    token = _DECLARED.set(functions)
    try:
        yield
    finally:
        _DECLARED.reset(token)


def user_function(name: str) -> UserFunction | None:
    """The function of that name, in whatever case; None if none is declared."""
    return _DECLARED.get().get(name.upper())


def names() -> tuple[str, ...]:
    """The names of the functions that expressions may call."""
    return tuple(_DECLARED.get())


def user_call(function: UserFunction, arguments: Sequence[Rendered], *, stops: bool, lateral: bool = False) -> Rendered:
    """Spark SQL of a call.

    Args:
        stops: a row without a value stops the query; otherwise the row is set aside with the reason.
        lateral: the call stands in LATERAL TABLE(...), as those of table functions do and of no others.

    Raises:
        FunctionFault: it does not take these arguments.
    """
    name, wanted = function.name, function.signature.arguments
    if function.signature.table and not lateral:
        raise FunctionFault(f"{name} gives rows: write CROSS JOIN LATERAL TABLE({name}(...)) AS t (...)")
    if lateral and not function.signature.table:
        raise FunctionFault(
            f"{name} gives one value, not rows: call it in the select list, or declare it by @upsert_platform.udtf"
        )
    if len(arguments) != len(wanted):
        raise FunctionFault(f"{function.name} does not take {len(arguments)} arguments but {len(wanted)}")
    given = [
        _given(function, at, value, to) for at, (value, to) in enumerate(zip(arguments, wanted, strict=True), start=1)
    ]
    call = f"{spark_name(function, stops=stops)}({', '.join(item.sql for item in given)})"
    result = nullable(function.signature.result)
    found = made(call, result, *given) if stops else made(f"{call}.value", result, *given, fails=f"{call}.reason")
    if function.signature.deterministic:
        return found
    return Rendered(found.sql, found.type, simple=True, varies=found.varies or function.name, fails=found.fails)


def _given(function: UserFunction, at: int, value: Rendered, to: LogicalType) -> Rendered:
    alike = any(value.root in family and to.name in family for family in (STRINGS, NUMBERS))
    if value.type is not None and not same_type(value.type, to) and not alike:
        raise FunctionFault(f"{function.name} takes {to} as argument {at}, not {value.type}: write CAST(... AS {to})")
    return cast(value, to, implicit=True)
