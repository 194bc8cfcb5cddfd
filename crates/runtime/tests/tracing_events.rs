//! What the runtime tells to `tracing`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "shared/watchdog.rs"]
#[expect(dead_code, reason = "other tests use all of it")]
mod watchdog;

use std::fmt::{self, Write};

use clika_executor::sync::Mutex;
use clika_runtime::{Device, Stream};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::watchdog::watch;

static TOLD: Mutex<Vec<(Level, &str, String)>> = Mutex::new(Vec::new());

struct Collector;

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?};").unwrap();
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let about = event.metadata();
        TOLD.lock().push((*about.level(), about.target(), text.0));
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

fn told(part: &str) -> Vec<Level> {
    let told = TOLD.lock();
    let matching = told.iter().filter(|(_, _, text)| text.contains(part));
    matching.map(|(level, ..)| *level).collect()
}

struct Unprintable;

impl fmt::Debug for Unprintable {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("printing panics")
    }
}

impl fmt::Display for Unprintable {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("printing panics")
    }
}

impl std::error::Error for Unprintable {}

#[test]
fn the_life_of_a_stream_is_told() {
    let _watchdog = watch();
    std::panic::set_hook(Box::new(|_| ()));
    tracing::subscriber::set_global_default(Collector).unwrap();
    let stream = Stream::named(Device::cpu(), "told").unwrap();
    stream.submit(|| "one".parse::<u32>().map(drop)).unwrap();
    stream.submit(|| ()).unwrap();
    assert!(stream.synchronize().is_err());
    stream.submit(|| Err::<(), _>(Unprintable)).unwrap();
    assert!(stream.synchronize().is_err());
    drop(stream);
    assert_eq!(told("the runtime begins;workers="), [Level::DEBUG]);
    assert_eq!(
        told("a stream is made;stream=\"told\";device=cpu:0;"),
        [Level::DEBUG]
    );
    assert_eq!(
        told("operation 1 of stream 'told', submitted at"),
        [Level::DEBUG]
    );
    assert_eq!(told("invalid digit"), [Level::DEBUG]);
    assert!(
        told("operation 2 of stream 'told'").is_empty(),
        "it was skipped"
    );
    assert_eq!(
        told("the last handle of a stream is gone;stream=\"told\";"),
        [Level::DEBUG]
    );
    assert!(!told("a native worker begins").is_empty());
    let targets = TOLD
        .lock()
        .iter()
        .all(|(_, target, _)| target.starts_with("clika_runtime"));
    assert!(targets);
}
