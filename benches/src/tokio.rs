//! tokio: a queue is an unbounded channel and a task, so waiting for another queue blocks no thread.

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

use clika_cli::bench::peer::{Peer, Queue};

enum Message {
    Run(Box<dyn FnOnce() + Send>),
    Wait(oneshot::Receiver<()>),
}

/// A runtime with a worker for each core.
pub(crate) struct Tokio(Runtime);

impl Peer for Tokio {
    type Queue = TaskQueue;

    fn start() -> Self {
        Self(
            Builder::new_multi_thread()
                .build()
                .expect("the system grants some threads"),
        )
    }

    fn queue(&self) -> TaskQueue {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.spawn(run(receiver));
        TaskQueue(sender)
    }
}

async fn run(mut receiver: mpsc::UnboundedReceiver<Message>) {
    while let Some(message) = receiver.recv().await {
        match message {
            Message::Run(operation) => operation(),
            Message::Wait(event) => event.await.expect("every queue lives until it is drained"),
        }
    }
}

/// The sending side of one task.
#[derive(Clone)]
pub(crate) struct TaskQueue(mpsc::UnboundedSender<Message>);

impl TaskQueue {
    fn send(&self, message: Message) {
        assert!(
            self.0.send(message).is_ok(),
            "the task lives as long as its sender"
        );
    }
}

impl Queue for TaskQueue {
    type Event = oneshot::Receiver<()>;

    fn submit(&self, operation: impl FnOnce() + Send + 'static) {
        self.send(Message::Run(Box::new(operation)));
    }

    fn drain(&self) {
        self.record()
            .blocking_recv()
            .expect("the task reaches every mark");
    }

    fn record(&self) -> Self::Event {
        let (reached, event) = oneshot::channel();
        // A mark that nobody waits for is reached all the same.
        self.submit(move || reached.send(()).unwrap_or(()));
        event
    }

    fn wait(&self, event: Self::Event) {
        self.send(Message::Wait(event));
    }

    fn hold(&self) -> Box<dyn FnOnce()> {
        let (release, event) = oneshot::channel();
        self.wait(event);
        Box::new(move || release.send(()).expect("the task waits for its release"))
    }
}
