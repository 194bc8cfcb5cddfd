//! An event is a point in a stream's work: other streams, and the program, can wait for it.

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use clika_runtime::{Device, Stream};

static BASKET: AtomicU32 = AtomicU32::new(0);

fn main() -> Result<(), Box<dyn Error>> {
    let producer = Stream::named(Device::cpu(), "producer")?;
    let consumer = Stream::named(Device::cpu(), "consumer")?;
    let (open, gate) = mpsc::channel();

    // Relaxed is enough: whoever waits for an event sees all that was written before it.
    producer.submit_host(move || gate.recv())?;
    producer.submit(|| BASKET.store(3, Ordering::Relaxed))?;
    let ready = producer.record_event(); // marks all that was submitted so far

    consumer.wait_event(&ready)?; // the stream waits, this program does not
    let eaten = consumer.call(|| BASKET.load(Ordering::Relaxed))?;
    assert!(!ready.query());

    open.send(())?;
    ready.synchronize()?; // now the program waits
    assert!(ready.query());
    assert_eq!(BASKET.load(Ordering::Relaxed), 3);
    assert_eq!(eaten.wait()?, 3);
    println!("the consumer got three apples");

    // wait_stream waits for all that the other stream was given so far.
    producer.submit(|| BASKET.store(4, Ordering::Relaxed))?;
    consumer.wait_stream(&producer)?;
    let eaten = consumer.call(|| BASKET.load(Ordering::Relaxed))?;
    assert_eq!(eaten.wait()?, 4);

    // Timed events measure what runs between them.
    let start = producer.record_timed_event()?;
    let sum = producer.call(|| (0..1_000_000).map(black_box::<u64>).sum::<u64>())?;
    let end = producer.record_timed_event()?;
    end.synchronize()?;
    let took = start.elapsed_time(&end)?;
    println!("adding up to {} took {took:?}", sum.wait()?);
    assert!(took > Duration::ZERO);
    Ok(())
}
