"""The trace of the photo pipeline tells what the pipeline did."""

from __future__ import annotations

import functools
import importlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from trace_validation import Operation, Record, Scribe, validate

import clika_runtime
from clika_runtime import Device, memory_stats

DEMO: Final = Path(__file__).resolve().parent.parent / "demo" / "photo_pipeline.py"
PHOTOS: Final = 3
LANES: Final = 2
LINES: Final = DEMO.read_text().splitlines()


def site(code: str) -> str:
    """The one line of the demo with this code."""
    [line] = [number for number, text in enumerate(LINES, start=1) if code in text]
    return f"{DEMO}:{line}"


class Plan:
    """What the pipeline is to do, and when each of its functions has run."""

    def __init__(self, record: Record, demo: Any) -> None:
        self.scribe = Scribe(record, 0, [])
        self.began = 0
        self.pixels = demo.SIZE[0] * demo.SIZE[1] * 3
        self.expected: dict[tuple[str, str], Operation] = {}

    def add(self, stream: str, name: str, code: str, about: str, **uses: int) -> None:
        """Add a function, which is called about a photo."""
        operation = self.scribe.operation(
            stream,
            name,
            "python",
            site=site(code),
            uses=uses,
            writes=frozenset(uses),
            outcome="ran",
            called=(self.began, self.began),
        )
        self.expected[name, about] = operation

    def develop(self, run: str, photos: list[Any], streams: Any) -> None:
        """Add the whole pipeline: see the demo's own description."""
        self.began = time.monotonic_ns()
        self.expected.clear()
        for number, photo in enumerate(photos):
            reader, lane = streams.reader.name, streams.lanes[number % len(streams.lanes)].name
            file = {f"file {run} {number}": photo.source.stat().st_size}
            pixels = {f"pixels {run} {number}": self.pixels}
            self.add(reader, "Photo.read", "reader.submit(self.read, file)", photo.name, **file)
            self.add(lane, "Photo.decode", "lane.submit(self.decode, file)", photo.name, **file)
            for stage in ("resize", "denoise", "sharpen", "encode"):
                self.add(lane, f"Photo.{stage}", "lane.submit(stage, pixels)", photo.name, **pixels)
            writer = streams.writer.name
            paste = "streams.writer.submit(sheet.paste, pixels)"
            self.add(writer, "ContactSheet.paste", paste, str(number), **pixels)
            self.add(writer, "Photo.save", "streams.writer.submit(photo.save, folder)", photo.name)
            self.add(writer, "tqdm.update", "streams.writer.submit(bar.update)", str(number))
        save = "streams.writer.submit(sheet.save, folder)"
        self.add(streams.writer.name, "ContactSheet.save", save, "")

    def submitted(self) -> None:
        """Note that the last has been submitted."""
        for operation in self.expected.values():
            operation.called = self.began, time.monotonic_ns()

    def timed(
        self, function: Callable[..., Any], about: Callable[[Any], str]
    ) -> Callable[..., Any]:
        """The same function, which notes when and where it ran."""

        @functools.wraps(function)
        def run(self_: Any, *arguments: Any) -> Any:
            operation = self.expected[function.__qualname__, about(self_)]
            begin = time.monotonic_ns()
            try:
                return function(self_, *arguments)
            finally:
                operation.worker = threading.get_native_id()
                operation.ran = begin, time.monotonic_ns()

        return run


@pytest.mark.once
def test_the_trace_of_the_photo_pipeline(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(DEMO.parent)
    demo = importlib.import_module("photo_pipeline")
    record = Record()
    plan = Plan(record, demo)
    for stage in ("read", "decode", "resize", "denoise", "sharpen", "encode", "save"):
        timed = plan.timed(getattr(demo.Photo, stage), lambda photo: str(photo.name))
        monkeypatch.setattr(demo.Photo, stage, timed)
    monkeypatch.setattr(
        demo.ContactSheet,
        "paste",
        plan.timed(demo.ContactSheet.paste, lambda sheet: str(sheet.pasted)),
    )
    monkeypatch.setattr(demo.ContactSheet, "save", plan.timed(demo.ContactSheet.save, lambda _: ""))
    path = tmp_path / "trace.json"
    with clika_runtime.trace(path):
        for run, streams in {
            "one": demo.Streams.one(device),
            "several": demo.Streams.several(device, LANES),
        }.items():
            photos = demo.choose_photos(PHOTOS)
            plan.develop(run, photos, streams)
            demo.develop(photos, streams, tmp_path / run, run)
            plan.submitted()
            # Each function that is timed here has run.
            times = [one for (name, _), one in plan.expected.items() if name != "tqdm.update"]
            assert all(operation.ran is not None for operation in times)
        live = memory_stats(device).live_bytes
    record.live = {live, memory_stats(device).live_bytes}
    validate(path, record)
