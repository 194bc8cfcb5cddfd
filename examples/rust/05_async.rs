//! Futures, events and streams can be awaited, in any async runtime; here in a very small one.

use std::error::Error;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use clika_runtime::{Device, Stream};

/// Wakes the thread that sleeps in [`block_on`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let stream = Stream::create(Device::cpu())?;
    assert_eq!(stream.call(|| 2_u32.pow(10))?.await?, 1024);

    // An event is reached when all before it is done; a stream, when all of its work is.
    let (write, written) = mpsc::channel();
    let again = write.clone();
    stream.submit(move || write.send("event"))?;
    stream.record_event().await?;
    assert_eq!(written.try_recv()?, "event");
    stream.submit(move || again.send("stream"))?;
    (&stream).await?;
    assert_eq!(written.try_recv()?, "stream");
    println!("a future, an event and a stream were awaited");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    block_on(run())
}
