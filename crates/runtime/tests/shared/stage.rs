//! The threads of a random program: they take its steps in turns, or race.

use std::fmt;
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use clika_executor::sync::Mutex;

/// Takes the steps one after the other, each on the thread that it names, and returns the world
/// that they leave, or what the first step found wrong.
pub(crate) fn in_turns<W: Send, S: fmt::Debug + Sync>(
    world: W,
    threads: usize,
    steps: &[(usize, S)],
    take: impl Fn(&mut W, &S) -> Result<(), String> + Sync,
) -> Result<W, String> {
    let (turns, own): (_, Vec<_>) = (0..threads).map(|_| channel()).unzip();
    let stage = Stage {
        world: Mutex::new(Some(Ok(world))),
        turns,
        steps,
    };
    stage.pass_on(0);
    thread::scope(|scope| {
        let (stage, take) = (&stage, &take);
        let play = |(thread, turn)| scope.spawn(move || stage.play(thread, &turn, take));
        let threads: Vec<_> = own.into_iter().enumerate().map(play).collect();
        // Joined one by one, which ThreadSanitizer sees.
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    stage.world.into_inner().unwrap()
}

/// The world, and whose turn it is.
struct Stage<'a, W, S> {
    /// Taken out by who takes a step: if that panics, there is none for the others, which end too.
    world: Mutex<Option<Result<W, String>>>,
    turns: Vec<Sender<()>>,
    steps: &'a [(usize, S)],
}

impl<W, S: fmt::Debug> Stage<'_, W, S> {
    /// Takes the steps of one thread.
    fn play(
        &self,
        thread: usize,
        turn: &Receiver<()>,
        take: impl Fn(&mut W, &S) -> Result<(), String>,
    ) {
        for (place, (by, step)) in self.steps.iter().enumerate() {
            if *by == thread {
                turn.recv().unwrap();
                let mut slot = self.world.lock();
                // The next thread waits for the lock.
                self.pass_on(place + 1);
                let Some(mut world) = slot.take() else { return };
                if let Ok(all) = &mut world
                    && let Err(problem) = take(all, step)
                {
                    world = Err(format!("step {place}, {step:?}: {problem}"));
                }
                *slot = Some(world);
            }
        }
    }

    /// The step at `place` is the next.
    fn pass_on(&self, place: usize) {
        if let Some((by, _)) = self.steps.get(place) {
            // A thread that has ended has nothing more to do.
            let _ = self.turns[*by].send(());
        }
    }
}

/// Plays all parts at the same time, each on a thread of its own.
pub(crate) fn racing<P: Sync, R: Send>(parts: &[P], play: impl Fn(&P) -> R + Sync) -> Vec<R> {
    let (start, play) = (&Barrier::new(parts.len()), &play);
    thread::scope(|scope| {
        let begin = |part| {
            scope.spawn(move || {
                start.wait();
                play(part)
            })
        };
        let threads: Vec<_> = parts.iter().map(begin).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}
