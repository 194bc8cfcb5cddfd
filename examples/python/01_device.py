"""Which devices this machine has, and how to name one."""

from clika_runtime import Device, InvalidArgumentError, devices

for device in devices():
    print(f"{device}: {device.name}")
    print(f"  {device.compute_units} cores, {device.total_memory / 2**30:.1f} GiB of memory")
    print(f"  computes in {', '.join(map(str, device.formats))}")
    if device.driver_version is not None:
        print(f"  driver {device.driver_version}")

# A device is named by a text, in any case; without a number it is the first of its kind.
cpu = Device.parse("cpu")
assert cpu == Device.parse("CPU:0")
assert (cpu.kind, cpu.index) == ("cpu", 0)
assert cpu in devices()

# Devices are plain values: they can be keys, and they can be sent to another process.
assert {cpu: "here"}[Device.parse("cpu:0")] == "here"

# What is not there is an error that lists what is.
try:
    Device.parse("abacus")
except InvalidArgumentError as error:
    print(f"refused: {error}")
    assert "cpu" in str(error)
else:
    raise AssertionError("there is no such device")
