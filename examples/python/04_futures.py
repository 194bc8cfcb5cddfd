"""Every submitted function has a future: a real `concurrent.futures.Future`."""

import threading
from concurrent.futures import CancelledError, as_completed, wait

from clika_runtime import Device, Stream

cpu = Device.parse("cpu")
stream = Stream.create(cpu)

# The result, once it is there.
product = stream.submit(pow, 2, 10)
print(f"2 to the power of 10 is {product.result(timeout=30)}")
assert product.done()
assert product.result() == 1024

# Many futures, of several streams, with the functions of the standard library.
streams = [Stream.create(cpu) for _ in range(4)]
squares = [streams[n % 4].submit(pow, n, 2) for n in range(20)]
assert sum(future.result() for future in as_completed(squares)) == 2470
assert not wait(squares).not_done

# Work that has not started can be cancelled; the stream goes on with what comes after it.
gate = threading.Event()
first = stream.submit(gate.wait)
second = stream.submit(print, "never printed")
third = stream.submit(lambda: "third")
assert second.cancel()
gate.set()
assert third.result() == "third"
try:
    second.result()
except CancelledError:
    print("the second was cancelled, the third has run")
assert second.cancelled()
assert not first.cancelled()

# A callback runs when the future is done.
called = threading.Event()
stream.submit(len, "four").add_done_callback(lambda future: called.set())
assert called.wait(timeout=30)
