"""The Python reference, made from the compiled module and its stubs.

The directive ``{reference} GROUP`` documents every public name of the package that belongs to the
group. Texts are the docstrings of the compiled module; signatures and types are those of the stubs,
which `make check` compares with the module. A name that belongs to no group is an error.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.ext.napoleon.docstring import NumpyDocstring
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

import clika_runtime

STUBS: Final = Path(clika_runtime.__file__).with_name("_core.pyi")

#: The names on each page, as patterns, in the order in which they are shown. The first fit counts.
GROUPS: Final = {
    "devices": ("Device", "devices"),
    "streams": ("Stream", "current_stream"),
    "events": ("Event",),
    "futures": ("Future",),
    "memory": ("Buffer", "memory_*", "Memory*", "release_memory"),
    "observing": ("trace", "Trace", "stats", "*Stats"),
    "exceptions": ("ClikaError", "*Error"),
}


def place(name: str) -> tuple[str, int]:
    """Return the group of a public name, and its place there."""
    for group, patterns in GROUPS.items():
        for number, pattern in enumerate(patterns):
            if fnmatchcase(name, pattern):
                return group, number
    msg = f"clika_runtime.{name} is in no group of the reference: see GROUPS in {__file__}"
    raise ExtensionError(msg)


def names(group: str) -> list[str]:
    """Return the public names of a group."""
    places = {name: place(name) for name in clika_runtime.__all__}
    members = [name for name, (owner, _) in places.items() if owner == group]
    return sorted(members, key=lambda name: (places[name][1], name))


@cache
def stubs() -> dict[str, ast.FunctionDef]:
    """Return the functions, methods and properties of the stubs, by name, in their order."""
    found: dict[str, ast.FunctionDef] = {}
    for node in ast.parse(STUBS.read_text()).body:
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(part, ast.FunctionDef):
                found[prefix + part.name] = part
    return found


def members(cls: type) -> list[str]:
    """Return the public members of a class that are ours, in the order of the stubs."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("clika_runtime")]
    found = dict.fromkeys(name for base in ours for name in vars(base) if not name.startswith("_"))
    order = [name.removeprefix(f"{cls.__name__}.") for name in stubs()]
    return sorted(found, key=lambda name: order.index(name) if name in order else len(order))


def readable(annotation: ast.expr) -> str:
    """Return a type as the reference shows it: ``_T`` is ``T`` there."""
    return re.sub(r"\b_([PT])\b", r"\1", ast.unparse(annotation))


def signature(name: str, thing: Any) -> str:
    """Return the signature that the stubs tell; where they inherit it, that of the thing itself."""
    function = stubs().get(name)
    if function is None:
        return re.sub(r"\(self(, )?", "(", str(inspect.signature(thing)))
    result = f" -> {readable(function.returns)}" if function.returns else ""
    text = re.sub(r"^self(, /)?(, )?", "", ast.unparse(function.args))
    text = re.sub(r": _P\.\w+|\b_(?=[PT]\b)", "", text)
    return f"({re.sub(r'(?<=[^, ])=', ' = ', text)}){result}"


def directive(
    kind: str, name: str, text: str, options: list[str], body: list[str]
) -> Iterator[str]:
    """Yield the lines of a directive of the Python domain."""
    yield f".. py:{kind}:: {name}{text}"
    for line in (*options, *body):
        yield f"   {line}" if line else ""


class Reference(SphinxDirective):
    """Documents the names of one group."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return what the Python domain makes of them."""
        lines = [".. py:currentmodule:: clika_runtime", ""]
        for name in names(self.arguments[0]):
            lines += [*self.entry(name, getattr(clika_runtime, name)), ""]
        text = "\n".join(lines)
        return self.parse_text_to_nodes(f"````{{eval-rst}}\n{text}\n````\n")

    def entry(self, name: str, thing: Any) -> Iterator[str]:
        """Yield the lines that document a public name."""
        if not inspect.isclass(thing):
            body = list(self.documentation(thing))
            return directive("function", name, signature(name, thing), [], body)
        if issubclass(thing, BaseException):
            return self.exception(name, thing)
        body = list(self.documentation(thing))
        for member in members(thing):
            body += ["", *self.member(thing, member)]
        return directive("class", name, "", [], body)

    def exception(self, name: str, thing: type[BaseException]) -> Iterator[str]:
        """Yield the lines that document an exception."""
        bases = " and ".join(
            f"``{base.__name__}``"
            if base.__module__ == "builtins"
            else f":py:exc:`{base.__name__}`"
            for base in thing.__bases__
        )
        body = [*self.documentation(thing), f"Derives from {bases}."]
        return directive("exception", name, "", [], body)

    def member(self, cls: type, name: str) -> Iterator[str]:
        """Yield the lines that document one member of a class."""
        static, full = inspect.getattr_static(cls, name), f"{cls.__name__}.{name}"
        thing = getattr(cls, name)
        body = list(self.documentation(thing))
        if inspect.isdatadescriptor(static):
            returns = stubs()[full].returns if full in stubs() else None
            options = [f":type: {readable(returns)}"] if returns else []
            return directive("property", name, "", options, body)
        options = [":staticmethod:"] if isinstance(static, staticmethod) else []
        return directive("method", name, signature(full, thing), options, body)

    def documentation(self, thing: Any) -> Iterator[str]:
        """Yield the lines of a docstring, as reStructuredText."""
        text = NumpyDocstring(inspect.getdoc(thing) or "", self.config)
        yield from ("", *str(text).splitlines(), "")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("reference", Reference)
    return {"parallel_read_safe": True}
