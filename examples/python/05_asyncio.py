"""In asyncio, futures, events and streams can be awaited, and the event loop goes on meanwhile."""

import asyncio
import threading

from clika_runtime import Device, Stream


async def main() -> None:
    stream = Stream.create(Device.parse("cpu"))

    # A future gives its result.
    assert await stream.submit(pow, 2, 10) == 1024

    # While one task awaits the work, another runs: here it opens the gate that the work waits for.
    gate = threading.Event()

    async def open_gate() -> str:
        gate.set()
        return "opened by another task"

    opened = stream.submit(gate.wait)
    task = asyncio.create_task(open_gate())
    assert await opened is True
    print(await task)

    # An event is reached when all before it is done; a stream, when all of its work is.
    numbers: list[int] = []
    stream.submit(numbers.append, 1)
    one = stream.record_event()
    stream.submit(numbers.append, 2)
    await one
    assert numbers[0] == 1
    await stream
    assert numbers == [1, 2]

    # Many at once, on several streams.
    streams = [Stream.create(stream.device) for _ in range(4)]
    squares = await asyncio.gather(*(streams[n % 4].submit(pow, n, 2) for n in range(8)))
    print(squares)
    assert squares == [0, 1, 4, 9, 16, 25, 36, 49]


asyncio.run(main())
