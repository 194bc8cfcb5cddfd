//! The default stream runs work in the calling thread; it can wait for others as any stream can.

use std::error::Error;
use std::sync::mpsc;
use std::thread;

use clika_runtime::{Device, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let cpu = Device::cpu();
    let default = Stream::default_stream(cpu)?;
    assert!(default.is_default());
    assert_eq!(default, Stream::default_stream(cpu)?);

    // On the CPU the work has run when the call returns, and it ran here.
    let ran_in = default.call(|| thread::current().id())?;
    assert!(ran_in.is_done());
    assert_eq!(ran_in.wait()?, thread::current().id());

    // A stream that was created runs its work elsewhere.
    let stream = Stream::create(cpu)?;
    let ran_in = stream.call_host(|| thread::current().id())?;
    assert_ne!(ran_in.wait()?, thread::current().id());
    println!("{} runs here, {} elsewhere", default.name(), stream.name());

    // The default stream waits for events too: the call returns when the other stream's work and
    // its own are done.
    let (write, written) = mpsc::channel();
    let add = |stream: &Stream, letter: char| {
        let write = write.clone();
        stream.submit(move || write.send(letter))
    };
    add(&stream, 'a')?;
    default.wait_stream(&stream)?;
    add(&default, 'b')?;
    let letters: String = written.try_iter().collect();
    println!("{letters}");
    assert_eq!(letters, "ab");
    Ok(())
}
