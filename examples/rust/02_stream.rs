//! A stream is an ordered queue of work that runs while the program goes on.

use std::error::Error;
use std::sync::{Arc, Barrier, mpsc};

use clika_runtime::{Device, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let stream = Stream::named(Device::cpu(), "letters")?;
    let (open, gate) = mpsc::channel();
    let (write, written) = mpsc::channel();

    // Submitting returns at once, although the first function cannot end before the gate opens.
    // What may block its thread is submitted as host work, so that it holds up nothing else.
    stream.submit_host(move || gate.recv())?;
    for letter in "stream".chars() {
        let write = write.clone();
        stream.submit(move || write.send(letter))?;
    }
    println!("{}: {} not yet done", stream.name(), stream.pending());
    assert!(written.try_recv().is_err());
    assert!(!stream.query_idle());

    open.send(())?;
    stream.synchronize()?; // waits for all that was submitted before
    let word: String = written.try_iter().collect();
    println!("{word}");
    assert_eq!(word, "stream");
    assert!(stream.query_idle());

    // Two streams are independent: these two can only meet if they run at the same time.
    let meeting = Arc::new(Barrier::new(2));
    let left = Stream::create(stream.device())?;
    let right = Stream::create(stream.device())?;
    for side in [&left, &right] {
        let meeting = Arc::clone(&meeting);
        side.submit_host(move || {
            meeting.wait();
        })?;
    }
    left.synchronize()?;
    right.synchronize()?;
    println!("two streams met");
    Ok(())
}
