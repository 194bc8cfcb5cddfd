"""Develop real photographs on one stream, then on several, and compare.

Every photo is read, decoded, resized, denoised, sharpened, encoded, saved, and pasted on a contact
sheet. What happens to one photo is a row of plain functions, submitted to streams:

    reader   read 1, read 2, read 3, read 4, ...
    lane 1   decode, resize, denoise, sharpen, encode photo 1, then photo 3, ...
    lane 2   decode, resize, denoise, sharpen, encode photo 2, then photo 4, ...
    writer   paste and save photo 1, paste and save photo 2, ...

Files and pixels lie in buffers, and each function gets the buffers that it works on as arguments.
So no event has to say that lane 1 decodes what the reader has read, or that the writer pastes what
a lane has sharpened: the buffers show it. Pillow and NumPy let go of the interpreter lock while
they compute, so each lane keeps a core busy. The results are the same, byte for byte, whichever
streams did the work.
"""

import argparse
import filecmp
import io
import math
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import cycle, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from tqdm import tqdm

from clika_runtime import Buffer, Device, Stream, memory_stats, trace

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

SOURCES = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "rocket.jpg",
    "motorcycle_left.png",
    "hubble_deep_field.jpg",
    "retina.jpg",
    "ihc.png",
)
SIZE = (640, 480)  # of every developed photo: width, height
STRIP = 60  # rows smoothed at a time, so few that they stay in the processor's cache
THUMBNAIL = (160, 120)
GAP = 6
SHEET_NAME = "contact_sheet.jpg"
MOST_PHOTOS = 1000
MOST_STREAMS = 256


class Crop(NamedTuple):
    """A part of a photo: `zoom` is its share of the width, `x` and `y` (0 to 1) where it lies."""

    x: float
    y: float
    zoom: float


CROPS = (Crop(0.5, 0.5, 1.0), *(Crop(x, y, 0.6) for y, x in product((0.0, 0.5, 1.0), repeat=2)))


@dataclass
class Photo:
    """One photo on its way. Each method is a stage, and works on the buffers that it gets."""

    name: str
    source: Path
    crop: Crop
    image: Image.Image = field(init=False, repr=False)
    jpeg: bytes = field(init=False, repr=False)
    saved: bool = field(init=False, default=False)

    def read(self, file: Buffer) -> None:
        """Read the file from the disk."""
        with self.source.open("rb") as source, file.view(writable=True) as view:
            source.readinto(view)

    def decode(self, file: Buffer) -> None:
        """Turn the file into an image."""
        try:
            with Image.open(io.BytesIO(file.view())) as image:
                self.image = image.convert("RGB")
        except (OSError, SyntaxError) as error:  # Pillow's errors for broken files
            error.add_note(f"photo: {self.source.name}")
            raise

    def resize(self, pixels: Buffer) -> None:
        """Cut out the crop and bring it to the common size."""
        width, height = self.image.size
        scale = min(width / SIZE[0], height / SIZE[1]) * self.crop.zoom
        part = (int(SIZE[0] * scale), int(SIZE[1] * scale))
        left, top = int((width - part[0]) * self.crop.x), int((height - part[1]) * self.crop.y)
        box = (left, top, left + part[0], top + part[1])
        array(pixels)[:] = np.asarray(self.image.resize(SIZE, Image.Resampling.LANCZOS, box=box))
        del self.image

    def denoise(self, pixels: Buffer) -> None:
        """Smooth out the noise but not the edges."""
        array(pixels)[:] = smooth(array(pixels).astype(np.float32))

    def sharpen(self, pixels: Buffer) -> None:
        """Bring out the edges."""
        mask = ImageFilter.UnsharpMask(radius=2, percent=80, threshold=2)
        array(pixels)[:] = np.asarray(Image.fromarray(array(pixels)).filter(mask))

    def encode(self, pixels: Buffer) -> None:
        """Make a JPEG file of them."""
        file = io.BytesIO()
        Image.fromarray(array(pixels)).save(file, "JPEG", quality=90)
        self.jpeg = file.getvalue()

    def save(self, folder: Path) -> None:
        """Write the JPEG file to the disk."""
        (folder / self.name).write_bytes(self.jpeg)
        self.saved = True
        del self.jpeg

    def develop(self, reader: Stream, lane: Stream) -> Buffer:
        """Submit all stages, and return where the pixels will be."""
        file = Buffer.empty(self.source.stat().st_size, lane.device)
        pixels = Buffer.empty(SIZE[0] * SIZE[1] * 3, lane.device)
        reader.submit(self.read, file)
        lane.submit(self.decode, file)
        for stage in (self.resize, self.denoise, self.sharpen, self.encode):
            lane.submit(stage, pixels)
        return pixels


def array(pixels: Buffer) -> Bytes:
    """View the pixels of a developed photo, to be read and written."""
    view = pixels.view(writable=True)
    return np.frombuffer(view, dtype=np.uint8).reshape(SIZE[1], SIZE[0], 3)


def smooth(pixels: Floats, reach: int = 2, likeness: float = 20.0) -> Bytes:
    """Make each pixel the mean of its neighbours, those that look like it counting most.

    This is the bilateral filter, without its weights by distance.

    Parameters
    ----------
    pixels
        Shape (height, width, 3), values 0 to 255.
    reach
        How many pixels away a neighbour may be, to each side.
    likeness
        The difference in value at which a neighbour counts for little.
    """
    padded = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
    strips = (padded[top : top + STRIP + 2 * reach] for top in range(0, len(pixels), STRIP))
    return np.concatenate([smooth_strip(strip, reach, likeness) for strip in strips])


def smooth_strip(padded: Floats, reach: int, likeness: float) -> Bytes:
    """Smooth a few rows, given with `reach` more pixels on every side."""
    pixels = padded[reach:-reach, reach:-reach]
    height, width, _ = pixels.shape
    weight = np.empty_like(pixels)
    total, weights = np.zeros_like(pixels), np.zeros_like(pixels)
    for y, x in product(range(2 * reach + 1), repeat=2):
        neighbour = padded[y : y + height, x : x + width]
        np.subtract(neighbour, pixels, out=weight)
        np.square(weight, out=weight)
        weight *= np.float32(-1 / (2 * likeness**2))
        np.exp(weight, out=weight)
        weights += weight
        weight *= neighbour
        total += weight
    total /= weights
    return np.rint(total).astype(np.uint8)


class ContactSheet:
    """All photos on one page, in the order in which they are pasted."""

    def __init__(self, photos: int) -> None:
        self.columns = math.ceil(math.sqrt(photos))
        rows = math.ceil(photos / self.columns)
        size = (self.columns * (THUMBNAIL[0] + GAP) + GAP, rows * (THUMBNAIL[1] + GAP) + GAP)
        self.page = Image.new("RGB", size, "white")
        self.pasted = 0

    def paste(self, pixels: Buffer) -> None:
        """Paste the pixels of the next photo."""
        row, column = divmod(self.pasted, self.columns)
        corner = (GAP + column * (THUMBNAIL[0] + GAP), GAP + row * (THUMBNAIL[1] + GAP))
        image = Image.fromarray(array(pixels))
        self.page.paste(image.resize(THUMBNAIL, Image.Resampling.LANCZOS), corner)
        self.pasted += 1

    def save(self, folder: Path) -> None:
        """Write the page to the disk."""
        self.page.save(folder / SHEET_NAME, "JPEG", quality=90)


@dataclass(frozen=True)
class Streams:
    """Which stream does what. One stream may do everything."""

    reader: Stream
    lanes: tuple[Stream, ...]
    writer: Stream

    @classmethod
    def one(cls, device: Device) -> "Streams":
        """Give everything to a single stream."""
        only = Stream.create(device, name="only")
        return cls(only, (only,), only)

    @classmethod
    def several(cls, device: Device, lanes: int) -> "Streams":
        """Give a stream to each lane of photos, to reading, and to writing."""
        return cls(
            Stream.create(device, name="reader"),
            tuple(Stream.create(device, name=f"lane {n + 1}") for n in range(lanes)),
            Stream.create(device, name="writer"),
        )

    def __iter__(self) -> Iterator[Stream]:
        return iter(dict.fromkeys((self.reader, *self.lanes, self.writer)))

    def synchronize(self) -> None:
        """Wait for all. Each stream raises its failure once, and can be used again afterwards."""
        failures: list[Exception] = []
        for stream in self:
            try:
                stream.synchronize()
            except Exception as error:
                if error not in failures:  # one failure also reaches the streams that waited for it
                    failures.append(error)
        if failures:
            raise ExceptionGroup("the photos could not be finished", failures)


def develop(photos: Sequence[Photo], streams: Streams, folder: Path, label: str) -> None:
    """Run the whole pipeline on these streams and wait for it."""
    sheet = ContactSheet(len(photos))
    folder.mkdir(parents=True, exist_ok=True)
    with tqdm(total=len(photos), desc=label, unit="photo", disable=None) as bar:
        for photo, lane in zip(photos, cycle(streams.lanes), strict=False):
            pixels = photo.develop(streams.reader, lane)
            streams.writer.submit(sheet.paste, pixels)
            streams.writer.submit(photo.save, folder)
            streams.writer.submit(bar.update)
        streams.writer.submit(sheet.save, folder)
        streams.synchronize()


def choose_photos(count: int) -> list[Photo]:
    """Take the photographs that scikit-image ships: first each whole, then crops of them."""
    package = find_spec("skimage")  # finds it without importing it: only its pictures are wanted
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the photos come with scikit-image: pip install scikit-image")
    folder = Path(package.submodule_search_locations[0]) / "data"
    choices = cycle(product(CROPS, SOURCES))
    return [
        Photo(f"{n + 1:04}_{Path(source).stem}.jpg", folder / source, crop)
        for n, (crop, source) in zip(range(count), choices, strict=False)
    ]


class Run(NamedTuple):
    """What one run took, in seconds: on the clock, and of all cores together."""

    label: str
    wall: float
    busy: float


def measure(label: str, count: int, streams: Streams, folder: Path) -> Run:
    """Develop `count` photos and say how long it took."""
    photos = choose_photos(count)
    wall, busy = time.perf_counter(), time.process_time()
    develop(photos, streams, folder, label)
    return Run(label, time.perf_counter() - wall, time.process_time() - busy)


def warm_up() -> None:
    """Develop one photo by itself, so that the first run does not pay for loading code."""
    default = Stream.default_stream(Device.parse("cpu"))
    choose_photos(1)[0].develop(default, default)
    default.synchronize()


def table(count: int, *runs: Run) -> str:
    """Put the runs one below the other, and how much faster the last is than the first."""
    lines = [f"{f'{count} photos':<14}{'seconds':>9}{'photos/s':>10}{'cores busy':>12}"]
    for label, wall, busy in runs:
        lines.append(f"{label:<14}{wall:>9.2f}{count / wall:>10.1f}{busy / wall:>12.2f}")
    lines.append(f"{'gain':<14}{runs[0].wall / runs[-1].wall:>8.2f}x")
    return "\n".join(lines)


def check_same(one: Path, several: Path, names: Sequence[str]) -> None:
    """Raise unless both folders hold the same files, byte for byte."""
    _, different, missing = filecmp.cmpfiles(one, several, names, shallow=False)
    if different or missing:
        raise AssertionError(f"{one} and {several} differ in: {', '.join(different + missing)}")


def compare(count: int, lanes: int, device: Device, output: Path) -> None:
    """Develop the photos on one stream and on several, print both, check that the files agree."""
    folders = output / "one_stream", output / "several_streams"
    several_streams = Streams.several(device, lanes)
    warm_up()
    record = output / "timeline.json"
    with trace(record):
        one = measure("1 stream", count, Streams.one(device), folders[0])
        label = f"{len(list(several_streams))} streams"
        several = measure(label, count, several_streams, folders[1])
    names = [photo.name for photo in choose_photos(count)] + [SHEET_NAME]
    check_same(*folders, names)
    print(table(count, one, several))
    print(f"{len(names)} files, with the same bytes both times. See {folders[1] / SHEET_NAME}")
    stats = memory_stats(device)
    print(f"buffers: {stats.peak_bytes / 2**20:.0f} MiB at most, {stats.reused} reused")
    page = record.with_suffix(".html")
    command = [sys.executable, "-m", "clika_runtime", "timeline", str(record), "-o", str(page)]
    subprocess.run(command, check=True)
    print(f"what ran when, on which stream: open {page} in a browser")


def show_failure(count: int, lanes: int, device: Device, output: Path) -> None:
    """Damage one photo, show how its failure is reported, then go on with the same streams."""
    streams = Streams.several(device, lanes)
    photos = choose_photos(count)
    broken = photos[count // 2]
    broken.source = damaged_copy(broken.source, output)
    try:
        develop(photos, streams, output / "with_failure", "one photo damaged")
    except ExceptionGroup as failure:
        print(report(failure))
    else:
        raise AssertionError(f"{broken.source} was developed although it is damaged")
    saved = sum(photo.saved for photo in photos)
    print(f"{saved} of {count} photos were saved before the failure, the rest was skipped.")
    develop(choose_photos(count), streams, output / "after_failure", "all photos good")
    print(f"The same streams then developed all {count} photos from undamaged files.")


def damaged_copy(source: Path, folder: Path) -> Path:
    """Write the first half of a file, as after a broken download."""
    whole = source.read_bytes()
    copy = folder / f"damaged_{source.name}"
    copy.write_bytes(whole[: len(whole) // 2])
    return copy


def report(group: ExceptionGroup[Exception]) -> str:
    """Name each error, with its notes: the photo, and the line that submitted the work."""
    lines = [f"{group.message}:\n"]
    for failure in group.exceptions:
        lines += traceback.format_exception_only(failure)
    return "".join(lines).rstrip()


def number(most: int) -> Callable[[str], int]:
    """Accept a whole number from 1 to `most` on the command line."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
        return int(text)

    return parse


def command_line(device: Device) -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="photo_pipeline.py",
        description="Develop real photographs on one stream, then on several, and compare.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--photos",
        type=number(MOST_PHOTOS),
        default=48,
        metavar="N",
        help="how many photos (default: %(default)s)",
    )
    parser.add_argument(
        "--streams",
        type=number(MOST_STREAMS),
        default=device.compute_units,
        metavar="N",
        help="how many streams develop photos in the second run (default: one for each core); "
        "two more read and write",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("photo_pipeline_output"),
        metavar="FOLDER",
        help="where the results go (default: ./%(default)s)",
    )
    parser.add_argument(
        "--inject-failure", action="store_true", help="damage one photo and show what happens"
    )
    return parser


def main() -> int:
    """Run the command line."""
    device = Device.parse("cpu")
    parser = command_line(device)
    options = parser.parse_args()
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"cannot use --output {options.output}: {error.strerror}")
    action = show_failure if options.inject_failure else compare
    try:
        action(options.photos, options.streams, device, options.output)
    except ExceptionGroup as failure:
        print(report(failure), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
