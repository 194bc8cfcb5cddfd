//! Work that stays under way until the test lets it end.

use std::sync::mpsc;

use clika_runtime::Stream;

/// Work in front of a stream that ends when the gate is opened or dropped.
pub(crate) struct Gate {
    _open: mpsc::Sender<()>,
}

impl Gate {
    /// Puts the gate behind what `stream` has.
    pub(crate) fn on(stream: &Stream) -> Self {
        let (open, opened) = mpsc::channel::<()>();
        let wait = move || {
            let _ = opened.recv();
        };
        stream.submit_host(wait).unwrap();
        Self { _open: open }
    }

    /// As [`on`](Self::on), and returns once the work has begun.
    pub(crate) fn begun_on(stream: &Stream) -> Self {
        let (open, opened) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let wait = move || {
            begin.send(()).unwrap();
            let _ = opened.recv();
        };
        stream.submit_host(wait).unwrap();
        begun.recv().unwrap();
        Self { _open: open }
    }

    /// Lets the work end.
    pub(crate) fn open(self) {}
}
