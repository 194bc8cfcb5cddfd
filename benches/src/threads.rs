//! Peers with a thread for each queue: a std or crossbeam channel, or a rayon pool of one thread.
//! Their only way to wait for another queue is to block that thread.

use std::sync::{Arc, mpsc};
use std::thread;

use clika_cli::bench::peer::{Gate, Peer, Queue};

type Operation = Box<dyn FnOnce() + Send>;

/// The sending side of a thread that runs closures in order.
pub(crate) trait Sender: Clone + Send + 'static {
    /// Starts the thread.
    fn start() -> Self;

    /// Hands the thread one more closure.
    fn send(&self, operation: impl FnOnce() + Send + 'static);
}

/// `std::sync::mpsc` and a thread.
#[derive(Clone)]
pub(crate) struct StdMpsc(mpsc::Sender<Operation>);

impl Sender for StdMpsc {
    fn start() -> Self {
        let (sender, receiver) = mpsc::channel::<Operation>();
        thread::spawn(move || receiver.iter().for_each(|operation| operation()));
        Self(sender)
    }

    fn send(&self, operation: impl FnOnce() + Send + 'static) {
        self.0
            .send(Box::new(operation))
            .expect("the thread lives as long as its sender");
    }
}

/// `crossbeam-channel` and a thread.
#[derive(Clone)]
pub(crate) struct Crossbeam(crossbeam_channel::Sender<Operation>);

impl Sender for Crossbeam {
    fn start() -> Self {
        let (sender, receiver) = crossbeam_channel::unbounded::<Operation>();
        thread::spawn(move || receiver.iter().for_each(|operation| operation()));
        Self(sender)
    }

    fn send(&self, operation: impl FnOnce() + Send + 'static) {
        self.0
            .send(Box::new(operation))
            .expect("the thread lives as long as its sender");
    }
}

/// A rayon pool of one thread, which runs what is spawned in order.
#[derive(Clone)]
pub(crate) struct Rayon(Arc<rayon::ThreadPool>);

impl Sender for Rayon {
    fn start() -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        Self(Arc::new(pool.expect("the system grants one more thread")))
    }

    fn send(&self, operation: impl FnOnce() + Send + 'static) {
        self.0.spawn_fifo(operation);
    }
}

/// A peer whose queues are such threads.
pub(crate) struct Threads<S>(std::marker::PhantomData<S>);

impl<S: Sender> Peer for Threads<S> {
    type Queue = ThreadQueue<S>;

    const MANY: usize = 1_000;

    fn start() -> Self {
        Self(std::marker::PhantomData)
    }

    fn queue(&self) -> Self::Queue {
        ThreadQueue(S::start())
    }
}

/// One thread and what it was given.
#[derive(Clone)]
pub(crate) struct ThreadQueue<S>(S);

impl<S: Sender> Queue for ThreadQueue<S> {
    type Event = Arc<Gate>;

    fn submit(&self, operation: impl FnOnce() + Send + 'static) {
        self.0.send(operation);
    }

    fn drain(&self) {
        self.record().pass();
    }

    fn record(&self) -> Self::Event {
        let gate = Arc::new(Gate::default());
        let opened = Arc::clone(&gate);
        self.submit(move || opened.open());
        gate
    }

    fn wait(&self, event: Self::Event) {
        self.submit(move || event.pass());
    }

    fn hold(&self) -> Box<dyn FnOnce()> {
        let gate = Arc::new(Gate::default());
        self.wait(Arc::clone(&gate));
        Box::new(move || gate.open())
    }
}
