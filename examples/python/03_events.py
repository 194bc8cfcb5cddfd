"""An event is a point in a stream's work: other streams, and the program, can wait for it."""

import threading

from clika_runtime import Device, Stream

cpu = Device.parse("cpu")
producer, consumer = Stream.create(cpu, name="producer"), Stream.create(cpu, name="consumer")
gate = threading.Event()
basket: list[str] = []
eaten: list[str] = []

producer.submit(gate.wait)
producer.submit(basket.append, "apple")
ready = producer.record_event()  # marks all that was submitted so far
producer.submit(basket.append, "pear")  # not part of the event

consumer.wait_event(ready)  # the stream waits, this program does not
consumer.submit(lambda: eaten.append(basket[0]))
assert not ready.query()

gate.set()
ready.synchronize()  # now the program waits, for the apple only
assert ready.query()
assert basket[0] == "apple"
consumer.synchronize()
print(f"the consumer got the {eaten[0]}")
assert eaten == ["apple"]

# wait_stream waits for all that the other stream was given so far.
consumer.wait_stream(producer)
count = consumer.submit(lambda: len(basket))
assert count.result() == 2

# Timed events measure what runs between them, in milliseconds.
start = producer.record_event(timing=True)
producer.submit(sum, range(1_000_000))
end = producer.record_event(timing=True)
end.synchronize()
print(f"adding a million numbers took {start.elapsed_time(end):.1f} ms")
assert start.elapsed_time(end) > 0
