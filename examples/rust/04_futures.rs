//! `call` is a submission with a result: its future can be waited for, asked and cancelled.

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use clika_runtime::{Device, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let cpu = Device::cpu();
    let stream = Stream::create(cpu)?;

    // The result, once it is there.
    let power = stream.call(|| 2_u32.pow(10))?.wait()?;
    println!("2 to the power of 10 is {power}");
    assert_eq!(power, 1024);

    // Many futures, of several streams.
    let streams = (0..4)
        .map(|_| Stream::create(cpu))
        .collect::<Result<Vec<_>, _>>()?;
    let squares = (0..20_u32)
        .zip(streams.iter().cycle())
        .map(|(n, stream)| stream.call(move || n * n))
        .collect::<Result<Vec<_>, _>>()?;
    let mut sum = 0;
    for square in squares {
        sum += square.wait()?;
    }
    assert_eq!(sum, 2470);

    // Work that has not started can be cancelled; the stream goes on with what comes after it.
    let (open, gate) = mpsc::channel::<()>();
    let first = stream.call_host(move || gate.recv().is_ok())?;
    let second = stream.call(|| println!("never printed"))?;
    let third = stream.call(|| "third")?;
    assert!(second.cancel());
    assert!(second.is_cancelled());

    // A wait with a time limit gives up waiting, not the work.
    assert!(matches!(first.wait_timeout(Duration::ZERO), Err(error) if error.is_timeout()));
    open.send(())?;
    assert_eq!(third.wait()?, "third");
    assert!(first.is_done());
    assert!(first.wait()?);
    assert!(matches!(second.wait(), Err(error) if error.is_cancelled()));
    println!("the second was cancelled, the third has run");
    Ok(())
}
