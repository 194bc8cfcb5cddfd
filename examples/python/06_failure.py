"""When work fails, what comes after it is skipped, and the next wait raises the exception."""

from clika_runtime import CancelledError, Device, Stream

cpu = Device.parse("cpu")
stream, follower = Stream.create(cpu, name="main"), Stream.create(cpu, name="follower")
done: list[str] = []


def divide(dividend: int, divisor: int) -> float:
    return dividend / divisor


stream.submit(done.append, "before")
stream.submit(divide, 1, 0)  # fails; nobody has to look at the future
skipped = stream.submit(done.append, "after")
follower.wait_stream(stream)  # who waits for failed work fails too, with the same exception
follower.submit(done.append, "follower")

# Waiting for a stream raises what failed first, and says where it was submitted.
for waiting in (stream, follower):
    try:
        waiting.synchronize()
    except ZeroDivisionError as error:
        print(f"{waiting.name}: {error}", *error.__notes__, sep="\n  ")
        assert any("divide" in note and "06_failure.py:" in note for note in error.__notes__)
    else:
        raise AssertionError("the failure was lost")

# What came after it was skipped, because of it.
assert done == ["before"]
try:
    skipped.result()
except CancelledError as error:
    print(f"skipped because of: {error.__cause__!r}")
    assert isinstance(error.__cause__, ZeroDivisionError)

# Raising it acknowledged it: both streams can be used again.
stream.submit(done.append, "again")
follower.wait_stream(stream)
follower.synchronize()
assert done == ["before", "again"]

# Taking the exception from the failed function's own future acknowledges as well.
assert isinstance(stream.submit(divide, 1, 0).exception(), ZeroDivisionError)
stream.synchronize()
