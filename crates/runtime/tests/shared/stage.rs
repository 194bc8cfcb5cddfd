//! The threads of a random program: they take its steps in turns, or race.

use std::fmt;
use std::sync::{Barrier, Condvar, Mutex};
use std::thread;

/// Takes the steps one after the other, each on the thread that it names, and returns the world
/// that they leave, or what the first step found wrong.
pub(crate) fn in_turns<W: Send, S: fmt::Debug + Sync>(
    world: W,
    threads: usize,
    steps: &[(usize, S)],
    take: impl Fn(&mut W, &S) -> Result<(), String> + Sync,
) -> Result<W, String> {
    let stage = Stage {
        state: Mutex::new((0, Ok(world))),
        next: Condvar::new(),
    };
    thread::scope(|scope| {
        for thread in 0..threads {
            let (stage, take) = (&stage, &take);
            scope.spawn(move || stage.play(thread, steps, take));
        }
    });
    stage.state.into_inner().unwrap().1
}

/// Whose turn it is, by the place among the steps, and the world.
struct Stage<W> {
    state: Mutex<(usize, Result<W, String>)>,
    next: Condvar,
}

impl<W> Stage<W> {
    /// Takes the steps of one thread.
    fn play<S: fmt::Debug>(
        &self,
        thread: usize,
        steps: &[(usize, S)],
        take: impl Fn(&mut W, &S) -> Result<(), String>,
    ) {
        for (place, (by, step)) in steps.iter().enumerate() {
            if *by == thread {
                let state = self.state.lock().unwrap();
                let turn = self.next.wait_while(state, |state| state.0 < place);
                let mut state = turn.unwrap();
                state.0 = place + 1;
                // Now, for a step that panics: the others then find the lock poisoned, and end too.
                self.next.notify_all();
                if let Ok(world) = &mut state.1
                    && let Err(problem) = take(world, step)
                {
                    state.1 = Err(format!("step {place}, {step:?}: {problem}"));
                }
            }
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
