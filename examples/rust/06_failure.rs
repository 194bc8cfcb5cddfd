//! When work fails, what comes after it is skipped, and the next wait returns the failure.

use std::error::Error;
use std::num::ParseIntError;
use std::sync::mpsc;

use clika_runtime::{Device, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let stream = Stream::named(Device::cpu(), "main")?;
    let follower = Stream::named(Device::cpu(), "follower")?;
    let (write, written) = mpsc::channel();
    let say = |stream: &Stream, word: &'static str| {
        let write = write.clone();
        stream.submit(move || write.send(word))
    };

    say(&stream, "before")?;
    stream.submit(|| "twelve".parse::<u32>().map(drop))?; // fails
    let skipped = stream.call(|| "after")?;
    say(&stream, "after")?;
    follower.wait_stream(&stream)?; // who waits for failed work fails too, by the same failure
    say(&follower, "follower")?;

    // Waiting for a stream returns what failed first, and says where it was submitted.
    for waiting in [&stream, &follower] {
        let Err(error) = waiting.synchronize() else {
            panic!("the failure was lost");
        };
        println!("{}: {error}", waiting.name());
        assert!(error.is_operation());
        assert!(error.to_string().contains("06_failure.rs:"));
        assert!(error.source().is_some_and(|e| e.is::<ParseIntError>()));
    }

    // What came after it was skipped, because of it.
    assert_eq!(written.try_iter().collect::<Vec<_>>(), ["before"]);
    assert!(matches!(skipped.wait(), Err(error) if error.is_cancelled()));

    // Returning it acknowledged it: both streams can be used again.
    say(&stream, "again")?;
    follower.wait_stream(&stream)?;
    follower.synchronize()?;
    assert_eq!(written.try_iter().collect::<Vec<_>>(), ["again"]);
    Ok(())
}
