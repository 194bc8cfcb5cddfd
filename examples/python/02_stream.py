"""A stream is an ordered queue of work that runs while the program goes on."""

import threading

from clika_runtime import Device, Stream

stream = Stream.create(Device.parse("cpu"), name="letters")
gate = threading.Event()
word: list[str] = []

# Submitting returns at once, although the first function cannot end before the gate opens.
stream.submit(gate.wait)
for letter in "stream":
    stream.submit(word.append, letter)
print(f"{stream.name}: {stream.pending} submitted and not yet done")
assert word == []
assert not stream.query_idle()

gate.set()
stream.synchronize()  # waits for all that was submitted before
print("".join(word))
assert "".join(word) == "stream"
assert stream.query_idle()

# Two streams are independent: these two can only meet if they run at the same time.
meeting = threading.Barrier(2)
left, right = (Stream.create(stream.device) for _ in range(2))
assert left != right
left.submit(meeting.wait)
right.submit(meeting.wait)
left.synchronize()
right.synchronize()
print("two streams met")
