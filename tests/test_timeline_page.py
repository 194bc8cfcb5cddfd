"""The page that ``clikart timeline`` writes, in a headless Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from traces import FAILURE, START_UNIX_US, STEPS, Trace, pipeline

ROOT = Path(__file__).resolve().parent.parent
STYLE = ROOT / "crates" / "cli" / "src" / "timeline" / "page" / "page.css"
OPERATIONS = 100_000
KINDS = ("native", "host", "python", "copy", "fill", "marker")

Show = Callable[..., Page]


@pytest.fixture(scope="module")
def clikart() -> str:
    """The binary; ``make test-rust`` has built it before, as a rule."""
    command = ["cargo", "build", "--quiet", "--package", "clika-cli", "--profile", "checked"]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "checked" / "clikart")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for all tests."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("the Debian package chromium is not installed")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def show(clikart: str, browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """Turn a trace into a page and open it. What goes wrong on the page fails the test."""
    problems: list[str] = []
    contexts: list[BrowserContext] = []

    def show(trace: str, *, width: int = 1280, height: int = 800, dark: bool = False) -> Page:
        file = tmp_path / f"{len(contexts)}.html"
        command = [clikart, "timeline", "-", "--output", str(file)]
        subprocess.run(command, input=trace, text=True, check=True, capture_output=True)
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: said(message.text))
        page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
        page.on("request", lambda request: asked(request.url, file))
        page.goto(file.as_uri())
        return page

    def said(text: str) -> None:
        if "willReadFrequently" not in text:  # these tests read pixels, users do not
            problems.append(text)

    def asked(url: str, file: Path) -> None:
        if url != file.as_uri():
            problems.append(f"asked for {url}")

    yield show
    for context in contexts:
        context.close()
    assert not problems


@pytest.fixture
def photos(show: Show) -> Page:
    """The page of a small trace."""
    return show(pipeline(400))


def two_streams() -> Trace:
    """Return a trace whose figures can be worked out by hand."""
    trace = Trace()
    trace.head(["left", "right"], "two.py")
    trace.operation(1, 0, 600, "alpha", "native", n=1, site="two.py:10", worker="clika-worker-1")
    trace.operation(2, 0, 300, "wait", "wait", n=1)
    trace.wait(1, 600, 2, 600)
    trace.operation(
        2, 400, 400, "beta", "copy",
        n=2, submitted=150, waited=200, bytes=4_000_000, site="two.py:11", worker="clika-worker-2",
    )  # fmt: skip
    trace.operation(1, 800, 200, "gamma", "python", n=2, site="other.py:5", failure=FAILURE)
    trace.operation(1, 1000, 0, "delta", "native", n=3, site="two.py:12", skipped=True)
    trace.counter(1, 0, "queued: left", operations=3)
    trace.counter(0, 100, "memory", live=1 << 20, cached=1 << 19)
    return trace


@pytest.fixture
def two(show: Show) -> Page:
    """The page of that trace."""
    return show(two_streams().text())


def view(page: Page) -> tuple[float, float]:
    """Return the stretch of time in view, in nanoseconds."""
    start, end = page.evaluate("[page.view.from, page.view.to]")
    return start, end


def span(page: Page) -> float:
    start, end = view(page)
    return end - start


def operation(page: Page, name: str) -> int:
    """Return the number of the first operation of that name."""
    found = page.evaluate("name => page.trace.matches(name)[0]", name)
    assert isinstance(found, int)
    return found


def selected(page: Page) -> str:
    """Return the name of the selected operation."""
    return str(
        page.evaluate("page.state.selected < 0 ? '' : page.trace.title(page.state.selected)")
    )


def place(page: Page, op: int) -> tuple[float, float]:
    """Return where the middle of an operation is in the window."""
    x, y = page.evaluate(
        """op => {
            const { scene, trace, canvas } = page;
            const box = canvas.getBoundingClientRect();
            const x = scene.x((trace.start[op] + trace.end[op]) / 2);
            return [Math.round(box.left + x), Math.round(box.top + scene.middle(op))];
        }""",
        op,
    )
    return x, y


def facts(page: Page, element: str) -> dict[str, str]:
    """Return the facts that a list shows."""
    labels = page.locator(f"{element} dt").all_inner_texts()
    return dict(zip(labels, page.locator(f"{element} dd").all_inner_texts(), strict=True))


def test_summary(two: Page) -> None:
    # left ran for 800 µs and right for 400 µs; of 1,000 µs, something ran in all.
    assert two.title() == "two.py – timeline"
    figures = facts(two, "#figures")
    assert figures == {
        "duration": "1.000 ms",
        "operations": "5",
        "streams": "2",
        "busy": "100 %",
        "overlap": "1.20 ×",
        "failed": "1",
        "skipped": "1",
    }
    assert "2 workers" in two.inner_text("#about")
    start = two.evaluate("page.trace.startUnixUs")
    assert start == START_UNIX_US
    two.click("#tab-streams")
    rows = two.locator("#streams tbody tr").all_inner_texts()
    assert [re.split(r"\s*\t\s*", row.strip()) for row in rows] == [
        ["left", "3", "800.0 µs", "80 %"],
        ["right", "2", "400.0 µs", "40 %"],
    ]


def test_wheel_zooms_at_the_pointer(photos: Page) -> None:
    x, y = place(photos, operation(photos, "resize"))
    photos.mouse.move(x, y)
    before, under = span(photos), photos.evaluate("page.pointed()")
    photos.mouse.wheel(0, -300)
    photos.wait_for_function("before => page.view.span < before * 0.6", arg=before)
    assert photos.evaluate("page.pointed()") == pytest.approx(under, abs=span(photos) * 1e-6)
    photos.mouse.wheel(0, 300)
    photos.wait_for_function("before => page.view.span > before * 0.9", arg=before)
    for _ in range(20):
        photos.mouse.wheel(0, 1000)
    assert span(photos) <= photos.evaluate("page.view.whole()[1] - page.view.whole()[0]")


def test_wheel_with_shift_moves(photos: Page) -> None:
    photos.focus("#canvas")
    photos.keyboard.press("+")
    before = view(photos)
    photos.mouse.move(700, 250)
    photos.keyboard.down("Shift")
    photos.mouse.wheel(0, 100)
    photos.keyboard.up("Shift")
    photos.wait_for_function("before => page.view.from > before", arg=before[0])
    assert span(photos) == pytest.approx(before[1] - before[0])


@pytest.mark.parametrize(
    ("nearer", "wider", "earlier", "later", "all_"),
    [("+", "-", "ArrowLeft", "ArrowRight", "0"), ("w", "s", "a", "d", "Home")],
)
def test_keys(photos: Page, nearer: str, wider: str, earlier: str, later: str, all_: str) -> None:
    whole = view(photos)
    photos.keyboard.press(nearer)
    photos.keyboard.press(nearer)
    near = view(photos)
    assert near[1] - near[0] < (whole[1] - whole[0]) / 2
    photos.keyboard.press(later)
    assert view(photos)[0] > near[0]
    assert span(photos) == pytest.approx(near[1] - near[0])
    photos.keyboard.press(earlier)
    assert view(photos) == pytest.approx(near)
    photos.keyboard.press(wider)
    assert span(photos) > near[1] - near[0]
    photos.keyboard.press(all_)
    assert view(photos) == pytest.approx(whole)


def test_buttons(photos: Page) -> None:
    whole = span(photos)
    photos.click("#zoom-in")
    photos.click("#zoom-in")
    near = span(photos)
    photos.click("#zoom-out")
    assert near < span(photos) < whole
    photos.click("#fit")
    assert span(photos) == pytest.approx(whole)


def test_motion_glides_unless_nobody_wants_it(photos: Page) -> None:
    photos.emulate_media(reduced_motion="no-preference")
    before = span(photos)
    photos.keyboard.press("+")
    photos.keyboard.press("+")
    photos.wait_for_function("() => page.view.target === null")
    assert span(photos) == pytest.approx(before / 1.6**2)


def test_dragging_moves_and_clicking_does_not(photos: Page) -> None:
    photos.keyboard.press("+")
    before = view(photos)
    op = operation(photos, "demosaic")
    x, y = place(photos, op)
    x = max(x, 500)
    photos.mouse.move(x, y)
    photos.mouse.down()
    photos.mouse.move(x - 100, y, steps=4)
    photos.mouse.up()
    moved = view(photos)
    assert moved[0] > before[0]
    assert moved[1] - moved[0] == pytest.approx(before[1] - before[0])
    assert selected(photos) == ""
    photos.mouse.click(x, y)
    assert view(photos) == moved


def test_overview_moves_the_view(photos: Page) -> None:
    photos.keyboard.press("+")
    photos.keyboard.press("+")
    box = photos.locator("#canvas").bounding_box()
    assert box is not None
    photos.mouse.click(box["x"] + box["width"] - 40, box["y"] + 10)
    assert view(photos)[1] > photos.evaluate("page.trace.length * 0.95")


def test_hover_shows_every_fact(two: Page) -> None:
    assert two.is_hidden("#tip")
    two.mouse.move(*place(two, operation(two, "beta")))
    assert two.inner_text("#tip h2") == "beta"
    assert facts(two, "#tip") == {
        "kind": "copy",
        "stream": "right, number 2",
        "started at": "400.000 µs",
        "took": "400.0 µs",
        "submitted": "250.0 µs before it started",
        "waited": "200.0 µs",
        "thread": "clika-worker-2",
        "bytes": "3.81 MiB (10 GB/s)",
        "line": "two.py:11",
    }
    two.mouse.move(*place(two, operation(two, "gamma")))
    assert facts(two, "#tip")["failure"] == FAILURE
    two.mouse.move(*place(two, operation(two, "delta")))
    assert facts(two, "#tip")["skipped"]
    two.mouse.move(5, 5)
    assert two.is_hidden("#tip")


def test_clicking_keeps_the_facts_and_leads_along_waits(two: Page) -> None:
    two.mouse.click(*place(two, operation(two, "beta")))
    assert two.inner_text("#details-title") == "beta"
    assert facts(two, "#details")["waits for"] == "alpha on left"
    two.click("#details button")
    assert selected(two) == "alpha"
    assert facts(two, "#details")["lets go on"] == "beta on right"
    two.keyboard.press("Escape")
    assert selected(two) == ""


def test_the_keyboard_alone_reaches_every_operation(two: Page) -> None:
    for _ in range(20):
        two.keyboard.press("Tab")
        if two.evaluate("document.activeElement.id") == "canvas":
            break
    seen = []
    for key in ("Right", "Right", "Right", "Left", "Down", "Up", "Right"):
        two.keyboard.press(f"Shift+Arrow{key}")
        seen.append(selected(two))
        spoken = two.inner_text("#spoken")
        assert spoken.startswith(f"{seen[-1]}: ")
        assert "took" in spoken
        assert two.inner_text("#details-title") == seen[-1]
    assert seen == ["alpha", "gamma", "delta", "gamma", "beta", "alpha", "gamma"]
    before = span(two)
    two.keyboard.press("Enter")
    assert span(two) < before


def test_search(two: Page) -> None:
    two.keyboard.press("/")
    two.keyboard.type("TWO.py")
    assert two.inner_text("#found") == "3 found"
    seen = []
    for key in ("Enter", "Enter", "Enter", "Enter", "Shift+Enter"):
        two.keyboard.press(key)
        seen.append((selected(two), two.inner_text("#found")))
    assert seen == [
        ("alpha", "1 of 3"),
        ("beta", "2 of 3"),
        ("delta", "3 of 3"),
        ("alpha", "1 of 3"),
        ("delta", "3 of 3"),
    ]
    for query, name in (("amm", "gamma"), ("no pixels", "gamma"), ("skipped", "delta")):
        two.fill("#query", query)
        assert two.inner_text("#found") == "1 found"
        two.click("#next")
        assert selected(two) == name
    two.fill("#query", "nothing like it")
    assert two.inner_text("#found") == "0 found"
    assert two.is_disabled("#next")
    two.press("#query", "Escape")
    assert two.inner_text("#found") == ""
    assert two.evaluate("document.activeElement.id") == "canvas"


def test_the_count_of_failures_leads_to_them(photos: Page) -> None:
    photos.click("#figures button >> nth=0")
    assert photos.evaluate("page.trace.text('failure', page.state.selected)") == FAILURE


def test_tables_jump(photos: Page) -> None:
    whole = span(photos)
    photos.click("#longest tbody tr >> nth=2")
    op = photos.evaluate("page.state.selected")
    longest = photos.evaluate("page.trace.longest(3)")
    assert op == longest[2]
    assert span(photos) < whole
    start, end = view(photos)
    assert start <= photos.evaluate("op => page.trace.start[op]", op) <= end
    assert photos.get_attribute("#longest tbody tr >> nth=2", "aria-current") == "true"
    durations = photos.evaluate("page.trace.longest(100).map(op => page.trace.duration(op))")
    assert durations == sorted(durations, reverse=True)

    photos.focus("#longest tbody tr >> nth=0 >> button")
    photos.keyboard.press("Enter")
    assert photos.evaluate("page.state.selected") == longest[0]


def test_tabs_work_with_keys(photos: Page) -> None:
    photos.focus("#tab-longest")
    photos.keyboard.press("ArrowRight")
    assert photos.is_visible("#names")
    assert photos.is_hidden("#longest")
    assert photos.get_attribute("#tab-names", "aria-selected") == "true"
    names = set(photos.evaluate("page.trace.strings")) & {step[1] for step in STEPS}
    assert photos.locator("#names tbody tr").count() == len(names)


def test_keys_are_listed(photos: Page) -> None:
    photos.keyboard.press("?")
    assert photos.is_visible("#keys")
    photos.keyboard.press("Escape")
    assert photos.is_hidden("#keys")


def background(page: Page) -> list[int]:
    """Return the colour of the page, and that of the canvas where it is empty."""
    pixel = page.evaluate("[...page.scene.context.getImageData(3, 3, 1, 1).data]")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert [int(part) for part in re.findall(r"\d+", colour)] == pixel[:3]
    return list(pixel[:3])


def test_light_and_dark(show: Show) -> None:
    page = show(pipeline(50))
    light = background(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("() => document.getElementById('theme').ariaPressed === 'true'")
    page.evaluate("page.draw()")
    dark = background(page)
    assert sum(light) > 600
    assert sum(dark) < 150
    page.click("#theme")
    page.evaluate("page.draw()")
    assert background(page) == light
    page.emulate_media(color_scheme="light")
    page.click("#theme")
    page.evaluate("page.draw()")
    assert background(page) == dark
    assert background(show(pipeline(50), dark=True)) == dark


def test_operations_in_operations_lie_below(show: Show) -> None:
    trace = Trace()
    trace.head(["default"])
    trace.operation(1, 0, 100, "outer")
    trace.operation(1, 10, 50, "inner")
    trace.operation(1, 20, 5, "innermost")
    trace.operation(1, 70, 20, "second")
    page = show(trace.text())
    assert page.evaluate("[...page.trace.row]") == [0, 1, 2, 1]
    assert facts(page, "#figures")["overlap"] == "1.00 ×"
    for name in ("outer", "inner", "innermost", "second"):
        page.mouse.move(*place(page, operation(page, name)))
        assert page.inner_text("#tip h2") == ("inner" if name == "inner" else name)


HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\u202egnp.exe\u0000\ud800",
    "x" * 100_000,
    "",
)


def test_hostile_texts_are_shown_as_they_are(show: Show) -> None:
    trace = Trace()
    trace.head([HOSTILE[0], HOSTILE[1]], HOSTILE[0])
    for number, text in enumerate(HOSTILE):
        trace.operation(
            1 + number % 2, number * 10, 9, text, "native", site=text, failure=text, worker=text
        )
    page = show(trace.text().replace("\\ud800", "\\ufffd"))
    assert page.inner_text("#title") == HOSTILE[0]
    for number in range(len(HOSTILE)):
        page.evaluate("op => page.select(op)", number)
        page.mouse.move(*place(page, number))
    assert page.locator("img, script").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_trace_that_was_cut_off_says_so(show: Show) -> None:
    whole = two_streams().text()
    page = show(whole[: whole.index('"delta"')])
    assert "cut off" in page.inner_text("#notice")
    assert facts(page, "#figures")["operations"] == "4"
    assert show(whole).is_hidden("#notice")


@pytest.mark.parametrize("width", [360, 480, 700, 900])
def test_narrow_windows_have_everything(show: Show, width: int) -> None:
    page = show(pipeline(400), width=width, height=700)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("page.layout.right - page.layout.left") > width / 3
    page.click("#longest tbody tr >> nth=0")
    assert page.evaluate("page.state.selected") >= 0


def test_everything_has_a_name(photos: Page) -> None:
    nameless = photos.evaluate(
        """[...document.querySelectorAll("button, input, canvas, [role=tabpanel], section, dialog")]
            .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.getAttribute("aria-labelledby")))
            .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    assert "operations on 5 streams" in str(photos.get_attribute("#canvas", "aria-label"))


def test_streams_scroll_and_only_those_in_sight_are_drawn(show: Show) -> None:
    page = show(pipeline(20_000, 1_000))
    visited = page.evaluate("page.scene.drawn.visited")
    assert 0 < visited < 2_000
    page.focus("#canvas")
    page.keyboard.press("PageDown")
    assert page.evaluate("page.layout.scroll") > 0
    page.evaluate("page.scrollBy(1e9)")
    assert page.evaluate("page.layout.visible()[1]") == 999
    page.evaluate("page.jump(page.trace.nearest(0, 0))")
    assert page.evaluate("page.layout.visible()[0]") == 0


FRAMES = """
async () => {
  const { view, scene } = page;
  const [from, to] = view.whole();
  const zoomed = (part) => {
    const span = (to - from) * 0.001 ** part;
    view.show((from + to - span) / 2, (from + to + span) / 2);
  };
  zoomed(0);
  page.draw();
  const gaps = [];
  await new Promise((done) => {
    let last = null;
    const step = (now) => {
      if (last !== null) gaps.push(now - last);
      last = now;
      if (gaps.length === 90) return done();
      zoomed(gaps.length / 90);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  });
  const timed = (draw) => {
    const start = performance.now();
    draw();
    scene.context.getImageData(0, 0, 1, 1);  // not before all is painted
    return performance.now() - start;
  };
  const middle = (times) => times.sort((a, b) => a - b)[times.length >> 1];
  const measure = (part) => {
    zoomed(part);
    return middle(Array.from({ length: 30 }, () => timed(() => page.draw())));
  };
  measure(0.5);
  const times = [0, 0.25, 0.5, 0.75, 1].map((part) => [part, measure(part)]);
  const drawn = scene.drawn;
  zoomed(0);
  page.draw();
  return { times, near: drawn, whole: scene.drawn, gap: middle(gaps), worst: Math.max(...gaps) };
}
"""


def test_a_hundred_thousand_operations(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    page = show(pipeline(OPERATIONS, 10))
    assert page.evaluate("page.trace.count") >= OPERATIONS
    result: dict[str, Any] = page.evaluate(FRAMES)
    with capsys.disabled():
        times = ", ".join(f"{1000**-part:.1%}: {ms:.1f}" for part, ms in result["times"])
        print(f"\n{OPERATIONS:,} operations, ms to draw by share in view: {times};")
        print(
            f"ms between frames of a zoom: median {result['gap']:.1f}, worst {result['worst']:.1f}"
        )
    whole, near = result["whole"], result["near"]
    rows = page.evaluate("page.trace.tracks.reduce((sum, track) => sum + track.rows.length, 0)")
    pixels = page.evaluate("page.scene.width * page.scene.ratio")
    # What is painted is bounded by the pixels there are, and what is looked at by what is in view.
    assert whole["visited"] >= OPERATIONS
    assert whole["columns"] + 3 * whole["slices"] <= rows * (pixels + 1)
    assert near["visited"] < OPERATIONS / 100
    # Failures are in sight even so.
    assert page.evaluate("page.scene.marks.length") > 0

    page.fill("#query", "failed")
    assert page.inner_text("#found").endswith(" found")
    page.mouse.move(*place(page, operation(page, "failed")))
    assert facts(page, "#tip")["failure"] == FAILURE


def colours(dark: bool) -> dict[str, tuple[float, float, float]]:
    """Return the colours of the style sheet, as light from 0 to 1."""
    found = {}
    for name, *pair in re.findall(
        r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", STYLE.read_text()
    ):
        text = pair[dark]
        parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (
            ((p + 0.055) / 1.055) ** 2.4 if p > 0.04045 else p / 12.92 for p in parts
        )
        found[name] = (red, green, blue)
    return found


#: How colours look to people without one of the three cones (Viénot 1999; Brettel 1997 for the last, simplified).
SIGHTS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red cones": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "no green cones": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
    "no blue cones": ((1, 0.14461, -0.14461), (0, 0.85924, 0.14076), (0, 0.85924, 0.14076)),
}


def lab(light: tuple[float, ...]) -> tuple[float, float, float]:
    """Return a colour in Oklab, where distances are about as they are seen."""
    r, g, b = (max(0.0, part) for part in light)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sight", SIGHTS)
def test_kinds_can_be_told_apart_by_everybody(sight: str, dark: bool) -> None:
    known = colours(dark)
    seen = {
        kind: lab(
            tuple(
                sum(f * p for f, p in zip(row, known[name], strict=True)) for row in SIGHTS[sight]
            )
        )
        for kind, name in [*((kind, f"kind-{kind}") for kind in KINDS), ("failed", "failed")]
    }
    for one, other in combinations(seen, 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        assert distance > 0.07, f"{one} and {other} are {distance:.3f} apart"


@pytest.mark.parametrize("dark", [False, True])
def test_texts_have_contrast(dark: bool) -> None:
    known = {**colours(dark), "ink": colours(True)["failed-ink"]}

    def luminance(name: str) -> float:
        red, green, blue = known[name]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    pairs = [
        ("text", "page"),
        ("muted", "page"),
        ("text", "raised"),
        ("muted", "raised"),
        ("failed", "page"),
    ]
    pairs += [("ink", f"kind-{kind}") for kind in KINDS] + [
        ("failed-ink", "failed"),
        ("accent", "page"),
    ]
    for text, back in pairs:
        dim, bright = sorted((luminance(text), luminance(back)))
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, f"{text} on {back}"


def test_the_generated_traces_are_whole() -> None:
    for text in (pipeline(500), two_streams().text()):
        events = json.loads(text)
        assert {event["ph"] for event in events} == set("MXsfC")
