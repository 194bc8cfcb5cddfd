"""Streams share memory through buffers, which show the order: no event is needed."""

from clika_runtime import Buffer, Device, InvalidArgumentError, Stream, memory_stats

cpu = Device.parse("cpu")
writer, reader = Stream.create(cpu, name="writer"), Stream.create(cpu, name="reader")

# A buffer has a size, and memory from when its first writer runs.
numbers = Buffer.empty(4, cpu)


def count_up(numbers: Buffer, start: int) -> None:
    # Inside a function, access to the buffers among its arguments is direct.
    view = numbers.view(writable=True)
    for place in range(len(view)):
        view[place] = start + place


def add_up(numbers: Buffer) -> int:
    return sum(numbers.view())


# Functions that get the same buffer run in the order of these lines, on whatever streams.
first = writer.submit(count_up, numbers, 10)
total = reader.submit(add_up, numbers)
second = writer.submit(count_up, numbers, 20)
assert total.result() == 10 + 11 + 12 + 13

# Copies and fills go to the current stream: the default one, unless a stream is entered.
assert numbers.to_bytes() == bytes([20, 21, 22, 23])
with writer:
    numbers.fill(0, offset=2)
    numbers.copy_from(b"\xff")
target = bytearray(4)
numbers.copy_to(target)
assert target == bytes([255, 21, 0, 0])

# A view lets the host look at the bytes in place. While it lives, nothing may write to them.
with numbers.view() as view:
    assert view[0] == 255
    try:
        numbers.fill(1)
    except InvalidArgumentError as error:
        print(f"refused: {error}")
    else:
        raise AssertionError("a buffer was written to while it was being viewed")
numbers.fill(1)

# What a failed function should have written has failed too, until all of it is overwritten.
writer.submit(lambda numbers: 1 / 0, numbers)
try:
    numbers.to_bytes()
except ZeroDivisionError as error:
    print(f"failed: {error}", *error.__notes__)
else:
    raise AssertionError("the failure was lost")
numbers.fill(2)
assert numbers.to_bytes() == bytes([2, 2, 2, 2])

print(memory_stats(cpu))
