//! See what ran when: a trace, for `clikart timeline` or Perfetto.

use std::env::temp_dir;
use std::fs;

use clika_runtime::{Device, Stream, trace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cpu = Device::cpu();
    let (disk, work) = (Stream::named(cpu, "disk")?, Stream::named(cpu, "work")?);
    let path = temp_dir().join(format!("trace-{}.json", std::process::id()));
    let trace = trace(&path)?;
    for number in 0..10_u64 {
        disk.submit_host(|| fs::write("/dev/null", vec![0; 1 << 20]))?;
        // An arrow in the timeline leads from the one to the other.
        work.wait_stream(&disk)?;
        work.submit(move || assert!((0..100_000).sum::<u64>() > number))?;
    }
    // What has not ended yet is not in the trace.
    work.synchronize()?;
    trace.stop()?;
    let slices = fs::read_to_string(&path)?.matches("\"ph\":\"X\"").count();
    println!(
        "{slices} operations and waits: clikart timeline {}",
        path.display()
    );
    fs::remove_file(path)?;
    Ok(())
}
