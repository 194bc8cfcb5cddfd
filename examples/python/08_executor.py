"""A stream as a `concurrent.futures.Executor`, for code that was written for thread pools."""

import threading

from clika_runtime import Device, Stream

stream = Stream.create(Device.parse("cpu"))

with stream.as_executor() as executor:
    lengths = list(executor.map(len, ["one", "three", "five"]))
    print(lengths)
    assert lengths == [3, 5, 4]

    # As in every executor an exception stays with its own future, and later work goes on.
    failed = executor.submit(int, "twelve")
    passed = executor.submit(int, "12")
    assert passed.result() == 12
    assert isinstance(failed.exception(), ValueError)
    print(f"one failed ({failed.exception()}), the next is {passed.result()}")

    # Unlike a thread pool it keeps the order.
    gate = threading.Event()
    order: list[int] = []
    executor.submit(gate.wait)
    for n in range(5):
        executor.submit(order.append, n)
    gate.set()

# Leaving `with` waited for the work. The stream has no failure to raise and can still be used.
assert order == [0, 1, 2, 3, 4]
stream.synchronize()
assert stream.submit(len, "still here").result() == 10
