"""Documentation: every docstring is there, its examples run, and so do those of the README and the site."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import sysconfig
import textwrap
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
        for base in thing.__mro__ if inspect.isclass(thing) else ():
            for member, value in vars(base).items():
                if base.__module__ == "clika_runtime._core" and not member.startswith("_"):
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


#: Of every future of the standard library; ours refuses them, so no example shows them.
REFUSED = {"set_result", "set_exception", "set_running_or_notify_cancel"}


def functions() -> list[str]:
    """Return the names of all functions and methods."""
    return [
        name
        for name, thing in THINGS.items()
        if inspect.isroutine(thing)
        and not is_exception(name)
        and name.rpartition(".")[2] not in REFUSED
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


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def fences(page: Path) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page, also of indented ones, with their languages."""
    found = re.findall(
        r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", page.read_text(), re.MULTILINE | re.DOTALL
    )
    return [(language, textwrap.dedent(body)) for _, language, body in found]


def program(page: Path) -> tuple[str, list[str]]:
    """Return the Python blocks of a page as one program, and what it shows that each prints.

    A block prints nothing, unless a block of the language ``text`` comes next.
    """
    blocks, shown = [], []
    for language, body in fences(page):
        if language == "python":
            blocks.append(body)
            shown.append("")
        elif language == "text" and shown:
            shown[-1] = body
    return f"print({END!r})\n".join([*blocks, ""]), shown


#: Parts the output of one block from that of the next.
END = "--- end of the block ---"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_the_pages(page: Path, tmp_path: Path) -> None:
    """The Python blocks of a page run in order, as one program, in an empty folder."""
    source, shown = program(page)
    run = f"import os; os.chdir({str(tmp_path)!r})\n{source}"
    env = {
        # Python 3.12 and later warn of the fork that one page shows.
        "PYTHONWARNINGS": "ignore:This process:DeprecationWarning",
        # Where `clikart` is.
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
    }
    printed = run_python(run, env=env).stdout.split(END + "\n")[:-1]
    if page.name != "README.md":
        assert printed == shown


def test_the_pages_have_examples() -> None:
    with_examples = [page for page in PAGES if program(page)[1]]
    assert ROOT / "README.md" in with_examples
    assert len(with_examples) > 10


def test_the_rust_of_the_pages_runs() -> None:
    """The crate takes the pages that have some among its documentation, whose examples run."""
    crate = (ROOT / "crates" / "runtime" / "src" / "lib.rs").read_text()
    with_rust = [page for page in PAGES if "rust" in dict(fences(page))]
    assert with_rust
    assert all(f'/{page.relative_to(ROOT)}")]' in crate for page in with_rust)
