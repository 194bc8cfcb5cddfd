"""Documentation: every docstring is there, its examples run, and the README's do."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import run_python

import clika_runtime

ROOT = Path(__file__).parent.parent


def documented() -> Iterator[tuple[str, Any]]:
    """Yield the package, its public members and their public members, with their names."""
    yield "clika_runtime", clika_runtime
    for name in clika_runtime.__all__:
        thing = getattr(clika_runtime, name)
        yield name, thing
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not member.startswith("_"):
                yield f"{name}.{member}", getattr(value, "__func__", value)


THINGS = dict(documented())


def is_exception(name: str) -> bool:
    owner = getattr(clika_runtime, name.partition(".")[0], None)
    return inspect.isclass(owner) and issubclass(owner, BaseException)


@pytest.mark.parametrize("name", THINGS)
def test_everything_public_has_a_docstring(name: str) -> None:
    summary = (inspect.getdoc(THINGS[name]) or "").partition("\n\n")[0]
    assert summary.endswith("."), f"{name}: {summary!r}"


def examples(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(THINGS[name]) or "")


def functions() -> list[str]:
    """Return the names of all functions and methods."""
    return [
        name
        for name, thing in THINGS.items()
        if inspect.isroutine(thing) and not is_exception(name)
    ]


@pytest.mark.parametrize("name", functions())
def test_some_example_shows_it(name: str) -> None:
    """Each function and method is used in the example of its own or of a neighbour's docstring."""
    sources = [example.source for thing in THINGS for example in examples(thing)]
    assert any(re.search(rf"\b{name.rpartition('.')[2]}\b", source) for source in sources)


@pytest.mark.parametrize("name", [name for name in THINGS if examples(name)])
def test_the_examples_of_docstrings(name: str) -> None:
    """Each runs by itself, with the names of the package at hand."""
    names = {**vars(clika_runtime), "clika_runtime": clika_runtime}
    test = doctest.DocTest(examples(name), names, name, None, 0, None)
    output: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=output.append)
    assert results.failed == 0, "".join(output)
    assert results.attempted > 0


README = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
)


def test_the_readme_has_an_example() -> None:
    assert README


@pytest.mark.parametrize("number", range(len(README)))
def test_the_examples_of_the_readme(number: int) -> None:
    run_python(README[number])
