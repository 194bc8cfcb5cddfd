"""The documentation site: it builds, its links lead somewhere, and the reference and the proofs are complete."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag

import promises
import pytest
import reference
from harness import run_python
from sphinx.errors import ExtensionError
from test_docs import THINGS

import clika_runtime

ROOT = Path(__file__).parent.parent
SITE = ROOT / "target" / "docs"


class Page(NamedTuple):
    """What a page links to, loads from elsewhere, and can be linked to by."""

    links: list[str]
    loads: list[str]
    anchors: set[str]


class Reader(HTMLParser):
    """Collects the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.page = Page([], [], set())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if value is None:
                continue
            if name == "id" or (tag, name) == ("a", "name"):
                self.page.anchors.add(value)
            elif (tag, name) in (("a", "href"), ("form", "action")):
                self.page.links.append(value)
            elif name == "src" or (tag, name) == ("link", "href"):
                self.page.loads.append(value)


def read(path: Path) -> Page:
    reader = Reader()
    reader.feed(path.read_text())
    return reader.page


@pytest.fixture(scope="module")
def pages() -> dict[Path, Page]:
    """The pages that Sphinx made, freshly, with rustdoc beside them."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    made = subprocess.run(["make", "build-docs"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    own = (path for path in SITE.rglob("*.html") if not path.is_relative_to(SITE / "rust"))
    return {path: read(path) for path in own}


def target(page: Path, link: str) -> tuple[Path, str]:
    """Return the file that a link leads to, and the anchor in it."""
    address, anchor = urldefrag(link)
    return (page.parent / unquote(address)).resolve() if address else page, unquote(anchor)


def local(links: list[str]) -> Iterator[str]:
    return (link for link in links if not link.startswith("https:"))


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    """Within the site and into rustdoc, with their anchors."""
    broken, known = [], dict(pages)
    for path, page in pages.items():
        for link in local(page.links + page.loads):
            file, anchor = target(path, link.partition("?")[0])
            if file.is_file() and anchor and file not in known:
                known[file] = read(file)
            if not file.is_file() or (anchor and anchor not in known[file].anchors):
                broken.append((str(path.relative_to(SITE)), link))
    assert not broken
    assert any(file.is_relative_to(SITE / "rust") for file in linked(pages))


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page]) -> None:
    loads = {load for page in pages.values() for load in page.loads}
    assert loads == set(local(list(loads)))


def linked(pages: dict[Path, Page]) -> set[Path]:
    """Return what can be reached from the first page by links."""
    seen, new = set[Path](), {SITE / "index.html"}
    while new:
        path = new.pop()
        seen.add(path)
        links = local(pages[path].links) if path in pages else iter(())
        new |= {target(path, link)[0] for link in links} - seen
    return seen


def test_every_page_can_be_reached(pages: dict[Path, Page]) -> None:
    assert set(pages) - linked(pages) == set()


# --- the reference ----------------------------------------------------------------------------------------


def test_the_reference_has_every_public_name(pages: dict[Path, Page]) -> None:
    content = (SITE / "objects.inv").read_bytes().split(b"\n", 4)[4]
    lines = zlib.decompress(content).decode().splitlines()
    names = {line.split()[0] for line in lines if line.split()[1].startswith("py:")}
    assert names == {f"clika_runtime.{name}" for name in THINGS} - {"clika_runtime.clika_runtime"}


def test_a_name_without_a_group_is_an_error() -> None:
    assert reference.place("devices")[0] == "devices"
    with pytest.raises(ExtensionError, match=r"clika_runtime\.abacus is in no group"):
        reference.place("abacus")


def test_the_reference_tells_types() -> None:
    expected = "(device: Device, *, name: str | None = None) -> Stream"
    assert reference.signature("Stream.create", clika_runtime.Stream.create) == expected


# --- the promises -----------------------------------------------------------------------------------------

COLLECT = """
import json, sys, pytest

class Marks:
    def pytest_collection_modifyitems(self, items):
        marked = {
            (number, item.path.name, item.originalname)
            for item in items
            for mark in item.iter_markers("promise")
            for number in mark.args
        }
        sys.stderr = sys.__stdout__
        print(json.dumps(sorted(marked)), file=sys.stderr)

pytest.main(["--collect-only", "--quiet", "--quiet", "-p", "no:cacheprovider", sys.argv[1]], plugins=[Marks()])
"""


def test_the_proofs_are_the_tests_that_pytest_marks() -> None:
    """The site reads the sources; pytest has the last word on what is marked."""
    printed = run_python(COLLECT, str(ROOT / "tests")).stdout
    marked = {tuple(line) for line in json.loads(printed.splitlines()[0])}
    shown = {
        (number, Path(file).name, name)
        for number, files in promises.proofs().items()
        for file, names in files.items()
        for name in names
        if file.endswith(".py")
    }
    assert shown == marked


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("promise_07_a_failure", {7}),
        ("promise_2_ten_thousand", {2}),
        ("promise_01_to_03_programs", {1, 2, 3}),
        ("promise_04_06_07_programs", {4, 6, 7}),
    ],
)
def test_rust_tests_tell_their_promises_by_name(name: str, numbers: set[int]) -> None:
    source = f"#[test]\nfn {name}() {{\n    fn other() {{}}\n}}\n"
    assert list(promises.rust_tests(source)) == [(name, numbers)]


def test_every_rust_test_of_a_promise_tells_its_number() -> None:
    """A name that the site cannot read would be missing there."""
    sources = "".join(path.read_text() for path in (ROOT / "crates").rglob("*.rs"))
    named = set(re.findall(r"fn (promise_\w+)\(", sources))
    assert named == {name for name, _ in promises.rust_tests(sources)}


def test_a_promise_without_a_proof_is_an_error() -> None:
    proven = {number: {"file": ["test"]} for number in range(1, promises.COUNT + 1)}
    proven = {n: p for n, p in proven.items() if n not in promises.UNPROVEN}
    promises.check(proven)
    with pytest.raises(ExtensionError, match="promise 3 has no test"):
        promises.check({n: p for n, p in proven.items() if n != 3})
    with pytest.raises(ExtensionError, match="promise 16 is proven"):
        promises.check(proven | {16: {"file": ["test"]}})
    with pytest.raises(ExtensionError, match="do not exist"):
        promises.check(proven | {18: {"file": ["test"]}})


def test_the_page_lists_each_promise_and_its_proofs(pages: dict[Path, Page]) -> None:
    text = (SITE / "promises.html").read_text()
    for number, files in promises.proofs().items():
        assert f">{number}. " in text
        assert all(name in text for names in files.values() for name in names)
