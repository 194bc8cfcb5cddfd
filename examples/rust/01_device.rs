//! Which devices this machine has, and how to name one.

use std::collections::HashMap;
use std::error::Error;

use clika_runtime::{Device, DeviceKind, devices};

fn main() -> Result<(), Box<dyn Error>> {
    for device in devices() {
        println!("{device}: {}", device.name());
        let gib = device.total_memory() >> 30;
        println!("  {} cores, {gib} GiB of memory", device.compute_units());
        println!("  computes in {}", device.formats().join(", "));
        if let Some(version) = device.driver_version() {
            println!("  driver {version}");
        }
    }

    // A device is named by a text, in any case; without a number it is the first of its kind.
    let cpu: Device = "cpu".parse()?;
    assert_eq!(cpu, "CPU:0".parse()?);
    assert_eq!(cpu, Device::cpu());
    assert_eq!((cpu.kind(), cpu.index()), (DeviceKind::Cpu, 0));
    assert!(devices().contains(&cpu));

    // Devices are plain values: they are copied, compared and used as keys.
    let places = HashMap::from([(cpu, "here")]);
    assert_eq!(places.get(&Device::cpu()), Some(&"here"));

    // What is not there is an error that lists what is.
    match "abacus".parse::<Device>() {
        Err(error) if error.is_invalid_argument() => {
            println!("refused: {error}");
            assert!(error.to_string().contains("cpu:0"));
        }
        other => panic!("there is no such device: {other:?}"),
    }
    Ok(())
}
