"""The tests that prove each promise, collected from their sources.

The directive ``{promise} NUMBER`` lists them. A Python test, its class or its module is marked
``@pytest.mark.promise(7)``; the name of a Rust test begins with ``promise_07_``. A promise that no
test proves is an error, unless `UNPROVEN` says why.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

ROOT: Final = Path(__file__).parents[2]

#: How many promises there are.
COUNT: Final = 17

#: Promises that no test can prove yet, and why.
UNPROVEN: Final = {
    16: "No test proves this yet: the CPU cannot be lost, and there is no GPU backend."
}

#: Names of Rust tests: `promise_07_…`, `promise_05_07_…` for both, `promise_01_to_10_…` for all.
RUST_TEST: Final = re.compile(r"^\s*fn (promise((?:(?:_to)?_\d+)+)_\w+)\(", re.MULTILINE)

#: For each promise, the names of its tests, by file.
Proofs = dict[int, dict[str, list[str]]]


def marked(expressions: list[ast.expr]) -> set[int]:
    """Return the numbers that ``pytest.mark.promise`` has among some marks."""
    calls = [
        call
        for expression in expressions
        for call in ast.walk(expression)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.promise"
    ]
    return {ast.literal_eval(number) for call in calls for number in call.args}


def module_marks(module: ast.Module) -> set[int]:
    """Return the numbers that a whole module is marked with."""
    values = [
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    return marked(values)


def python_tests(body: list[ast.stmt], outer: set[int]) -> Iterator[tuple[str, set[int]]]:
    """Yield the tests of a module or a class with the numbers that they are marked with."""
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from python_tests(node.body, outer | marked(node.decorator_list))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name, outer | marked(node.decorator_list)


def rust_tests(text: str) -> Iterator[tuple[str, set[int]]]:
    """Yield the tests of a Rust file with the numbers in their names."""
    for name, numbers in RUST_TEST.findall(text):
        found: list[int] = []
        for to, number in re.findall(r"(_to)?_(\d+)", numbers):
            found += range(found[-1] if to else int(number), int(number) + 1)
        yield name, set(found)


@cache
def proofs() -> Proofs:
    """Return what proves what."""
    found: Proofs = defaultdict(lambda: defaultdict(list))
    for path in sources():
        text = path.read_text()
        if path.suffix == ".py":
            module = ast.parse(text)
            tests = python_tests(module.body, module_marks(module))
        else:
            tests = rust_tests(text)
        for name, numbers in tests:
            for number in numbers:
                found[number][str(path.relative_to(ROOT))].append(name)
    check(found)
    return found


def sources() -> list[Path]:
    """Return the files that have tests of promises."""
    return [*sorted(ROOT.glob("tests/test_*.py")), *sorted(ROOT.glob("crates/**/*.rs"))]


def check(found: Proofs) -> None:
    """Refuse promises without a proof, and proofs without a promise."""
    for number in range(1, COUNT + 1):
        if bool(found.get(number)) == (number in UNPROVEN):
            state = "is proven, but UNPROVEN says it is not" if found.get(number) else "has no test"
            msg = f"promise {number} {state}: see {__file__}"
            raise ExtensionError(msg)
    if unknown := sorted(set(found) - set(range(1, COUNT + 1))):
        msg = f"tests claim to prove promises that do not exist: {unknown}"
        raise ExtensionError(msg)


class Promise(SphinxDirective):
    """Lists the tests that prove a promise."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the list, folded."""
        number = int(self.arguments[0])
        if number in UNPROVEN:
            return self.parse_text_to_nodes(f"*{UNPROVEN[number]}*\n")
        files = proofs()[number]
        count = sum(map(len, files.values()))
        summary = nodes.paragraph("", f"Proven by {count} tests in {len(files)} files")
        body = nodes.bullet_list()
        for file, names in files.items():
            tests = nodes.bullet_list()
            tests += [item(name) for name in names]
            body += item(file, tests)
        return [
            nodes.raw("", "<details class='proof'><summary>", format="html"),
            *summary.children,
            nodes.raw("", "</summary>", format="html"),
            body,
            nodes.raw("", "</details>", format="html"),
        ]


def item(code: str, *inside: nodes.Node) -> nodes.list_item:
    """Return a list item that begins with code."""
    paragraph = nodes.paragraph("", "", nodes.literal(code, code))
    return nodes.list_item("", paragraph, *inside)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("promise", Promise)
    return {"parallel_read_safe": True}
