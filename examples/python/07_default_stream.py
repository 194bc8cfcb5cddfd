"""The default stream runs work in the calling thread; `with` chooses another stream for a while."""

import threading

from clika_runtime import Device, Stream, current_stream

cpu = Device.parse("cpu")
default = Stream.default_stream(cpu)
assert default.is_default()
assert default == Stream.default_stream(cpu)

# On the CPU the work has run when the call returns, and it ran here.
thread = default.submit(threading.current_thread)
assert thread.done()
assert thread.result() is threading.current_thread()

# A stream that was created runs its work elsewhere.
stream = Stream.create(cpu)
assert stream.submit(threading.current_thread).result() is not threading.current_thread()


# Code that takes the current stream works on whichever stream its caller chose.
def where() -> str:
    return current_stream(cpu).name


assert where() == default.name
with stream:
    assert where() == stream.name
    with default:
        assert where() == default.name
    assert where() == stream.name
assert where() == default.name
print(f"first {default.name}, then {stream.name}, then {where()} again")

# The default stream, too, waits for events: the call returns when the other stream's work is done.
letters: list[str] = []
stream.submit(letters.append, "a")
default.wait_stream(stream)
default.submit(letters.append, "b")
print(letters)
assert letters == ["a", "b"]
