"""Finds, while tests are collected, those that reach for a program which nothing builds for them.

A test that runs a built program asks for a fixture: ``binaries`` or ``kubernetes`` for a control plane and kubectl, one
of ``building.OTHERS`` for the rest. Then it waits until that program is built. One that takes the program by itself
passes where an earlier run has built it, and fails on a new machine. So the functions that a test names are followed,
through its fixtures and the helpers of ``tests``, to ``wanted`` and to the sets of programs.
"""

from __future__ import annotations

import functools
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.control_plane import binaries
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.kit.building import OTHERS

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTROL_PLANE: Final = frozenset({"binaries", "kubernetes"})
_OF_BUILDS: Final = frozenset({"tests.cluster.control_plane.test_binaries", "tests.monitoring.test_programs"})
"""They build in folders of their own."""
_BUILDERS: Final = frozenset({"tests.kit.building", __name__})
"""They name programs and run none."""
_harmless: set[FunctionType] = set()
"""From these no program can be reached."""


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a module that has such a test fail to be collected. Raises ``pytest.Collector.CollectError``."""
    if metafunc.module.__name__ in _OF_BUILDS:
        return
    asked = {*metafunc.fixturenames}
    if metafunc.definition.get_closest_marker("only_kubernetes"):
        asked.add("kubernetes")
    own = {*OTHERS, *_CONTROL_PLANE}
    fixtures = [each.func for name, found in metafunc._arg2fixturedefs.items() if name not in own for each in found]
    for function in (metafunc.function, *fixtures):
        if found := lacking(function, asked):
            path, fixture = found
            named = " -> ".join(each.__qualname__ for each in path)
            raise pytest.Collector.CollectError(
                f"{metafunc.function.__name__} does not wait until a program is built that it reaches for ({named}): "
                f"let it ask for the fixture `{fixture}`, and take the program from there"
            )


def lacking(begin: Any, asked: set[str]) -> tuple[list[FunctionType], str] | None:
    """Return the way from a function to programs whose fixture is not asked for, and that fixture's name."""
    first = getattr(begin, "__func__", begin)
    if not isinstance(first, FunctionType):
        return None
    came_from: dict[FunctionType, FunctionType | None] = {first: None}
    left, harmless = [first], True
    while left:
        function = left.pop()
        reached, named = _named_in(function)
        harmless = harmless and not reached
        for fixture in reached:
            if not asked & (_CONTROL_PLANE if fixture in _CONTROL_PLANE else {fixture}):
                path = [function]
                while (before := came_from[path[0]]) is not None:
                    path.insert(0, before)
                return path, fixture
        for each in named:
            if each not in came_from and each not in _harmless:
                came_from[each] = function
                left.append(each)
    if harmless:
        _harmless.update(came_from)
    return None


@functools.cache
def _named_in(function: FunctionType) -> tuple[list[str], list[FunctionType]]:
    """Return the fixtures of the programs that a function names, and the functions and methods of ``tests``."""
    names = {*_names(function.__code__)}
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [each for each in values if isinstance(each, ModuleType) and _is_ours(each.__name__)]
    values += [vars(module)[name] for module in modules for name in names if name in vars(module)]
    reached = [name for name, programs in OTHERS.items() if any(programs is each for each in values)]
    if binaries.wanted in [each for each in values if isinstance(each, FunctionType)]:
        reached.append("binaries")
    if "getfixturevalue" in names:  # asked for at run time, they come too late
        reached += sorted({*OTHERS, *_CONTROL_PLANE} & {*_texts(function.__code__)})
    return reached, [each for value in values for each in _functions_of(value) if _is_ours(each.__module__)]


def _is_ours(module: str) -> bool:
    return module.startswith("tests.") and module not in _BUILDERS


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _texts(code: CodeType) -> Iterator[str]:
    return (each for each in code.co_consts if isinstance(each, str))


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """Yield a function without what wraps it, or the methods of a class of ``tests``."""
    if isinstance(value, type):
        if _is_ours(value.__module__) and not issubclass(value, GoPrograms):
            for each in vars(value).values():
                yield from _functions_of(each.fget if isinstance(each, property) else getattr(each, "__func__", None))
                yield from _functions_of(each) if isinstance(each, FunctionType) else ()
    else:
        value = getattr(value, "__wrapped__", value)
        if isinstance(value, FunctionType):
            yield value
