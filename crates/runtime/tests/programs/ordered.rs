//! Programs whose calls take effect in one order, on several threads, against the model.

use std::thread;
use std::time::Duration;

use clika_runtime::{Device, Error, Event, Future, Stream};
use proptest::prelude::{Just, any, prop_oneof};
use proptest::strategy::Strategy;
use proptest::test_runner::TestCaseError;

use crate::check::check;
use crate::journal::Journal;
use crate::model::{Expected, Mark, Model};
use crate::waiting::block_on;
use crate::work::{Id, Work, any_work};
use crate::{reports, stage, traced};

/// Picks one of what there is when the step is taken.
type Pick = u8;

/// How to wait.
#[derive(Clone, Copy, Debug)]
enum How {
    Block,
    Await,
    Poll,
}

#[derive(Clone, Debug)]
enum Step {
    Create,
    Submit(Pick, Work),
    Call(Pick, Work),
    Record(Pick, bool),
    WaitEvent(Pick, Pick),
    WaitStream(Pick, Pick),
    Synchronize(Pick, How),
    SynchronizeEvent(Pick, How),
    Take(Pick, How),
    Cancel(Pick),
    DropStream(Pick),
    DropEvent(Pick),
    DropFuture(Pick),
}

/// The steps in their order, each with the thread that takes it.
#[derive(Clone, Debug)]
struct Program {
    threads: usize,
    steps: Vec<(usize, Step)>,
}

fn any_step() -> impl Strategy<Value = Step> {
    let pick = any::<Pick>;
    let how = || prop_oneof![Just(How::Block), Just(How::Await), Just(How::Poll)];
    prop_oneof![
        2 => Just(Step::Create),
        8 => (pick(), any_work(8)).prop_map(|(stream, work)| Step::Submit(stream, work)),
        6 => (pick(), any_work(8)).prop_map(|(stream, work)| Step::Call(stream, work)),
        3 => (pick(), any::<bool>()).prop_map(|(stream, timed)| Step::Record(stream, timed)),
        4 => (pick(), pick()).prop_map(|(stream, event)| Step::WaitEvent(stream, event)),
        4 => (pick(), pick()).prop_map(|(stream, other)| Step::WaitStream(stream, other)),
        2 => (pick(), how()).prop_map(|(stream, how)| Step::Synchronize(stream, how)),
        1 => (pick(), how()).prop_map(|(event, how)| Step::SynchronizeEvent(event, how)),
        2 => (pick(), how()).prop_map(|(future, how)| Step::Take(future, how)),
        2 => pick().prop_map(Step::Cancel),
        1 => pick().prop_map(Step::DropStream),
        1 => pick().prop_map(Step::DropEvent),
        1 => pick().prop_map(Step::DropFuture),
    ]
}

fn any_program() -> impl Strategy<Value = Program> {
    (1..=3_usize).prop_flat_map(|threads| {
        let steps = proptest::collection::vec((0..threads, any_step()), 1..60);
        steps.prop_map(move |steps| Program { threads, steps })
    })
}

/// A handle, and what the model knows of it.
struct Held<T> {
    handle: T,
    mark: Mark,
}

/// The program's handles. Stream 0 is the default one and is never dropped.
struct World {
    streams: Vec<(usize, Stream)>,
    events: Vec<Held<Event>>,
    futures: Vec<(Id, Held<Future<u16>>)>,
    /// The names of all streams, by their numbers in the model.
    names: Vec<String>,
    model: Model,
    journal: Journal,
}

fn at<T>(list: &[T], pick: Pick) -> Option<usize> {
    (!list.is_empty()).then(|| usize::from(pick) % list.len())
}

/// Checks an outcome; `Ok(None)` for a time limit that passed.
fn compare<T>(outcome: Result<T, Error>, expected: Expected) -> Result<(), String> {
    let fits = match (&outcome, expected) {
        (Ok(_), Expected::Well) => true,
        (Err(error), Expected::Failed(id)) => {
            error.is_operation() && Id::in_error(error) == Some(id)
        }
        (Err(error), Expected::Skipped(id)) => {
            error.is_cancelled() && Id::in_error(error) == Some(id)
        }
        (Err(error), Expected::Cancelled) => {
            error.is_cancelled() && std::error::Error::source(error).is_none()
        }
        _ => false,
    };
    fits.then_some(())
        .ok_or_else(|| format!("{:?}, but {expected:?}", outcome.err()))
}

fn has_passed<T>(outcome: &Result<T, Error>) -> bool {
    outcome.as_ref().is_err_and(Error::is_timeout)
}

impl World {
    fn new() -> Self {
        let default = Stream::default_stream(Device::cpu()).unwrap();
        let mut model = Model::default();
        let names = vec![default.name()];
        let streams = vec![(model.create(), default)];
        Self {
            names,
            streams,
            events: vec![],
            futures: vec![],
            model,
            journal: Journal::default(),
        }
    }

    fn take_step(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Create => self.create(),
            Step::Submit(pick, work) => return self.submit(pick, work),
            Step::Call(pick, work) => self.call(pick, work),
            Step::Record(pick, timed) => self.record(pick, timed),
            Step::WaitEvent(pick, event) => self.wait_event(pick, event),
            Step::WaitStream(pick, other) => self.wait_stream(pick, other),
            Step::Synchronize(pick, how) => return self.synchronize(pick, how),
            Step::SynchronizeEvent(pick, how) => return self.synchronize_event(pick, how),
            Step::Take(pick, how) => return self.take(pick, how),
            Step::Cancel(pick) => return self.cancel(pick),
            Step::DropStream(pick) => self.drop_stream(pick),
            Step::DropEvent(pick) => self.drop_event(pick),
            Step::DropFuture(pick) => self.drop_future(pick),
        }
        Ok(())
    }

    fn create(&mut self) {
        let stream = Stream::create(Device::cpu()).unwrap();
        self.names.push(stream.name());
        self.streams.push((self.model.create(), stream));
    }

    fn stream(&self, pick: Pick) -> (usize, Stream) {
        self.streams[usize::from(pick) % self.streams.len()].clone()
    }

    fn submit(&mut self, pick: Pick, work: Work) -> Result<(), String> {
        let ((stream, handle), id) = (self.stream(pick), Id::next());
        let operation = self.journal.operation(id, work);
        let operation = || operation().map(drop);
        let outcome = if work.host {
            handle.submit_host(operation)
        } else {
            handle.submit(operation)
        };
        let mark = self.model.submit(stream, id, work.ends);
        if stream > 0 {
            return outcome.map_err(|error| error.to_string());
        }
        // On the default stream it has run, and a failure of its own is acknowledged.
        self.model.reach(mark);
        let expected = self.model.result(id, mark);
        compare(outcome, expected)?;
        if expected == Expected::Failed(id) {
            self.model.acknowledge(mark, id);
        }
        let thread = self.journal.read()?.get(id).map(|run| run.thread);
        match thread.is_none_or(|thread| thread == thread::current().id()) {
            true => Ok(()),
            false => Err(format!("{id:?} ran on another thread")),
        }
    }

    fn call(&mut self, pick: Pick, work: Work) {
        let ((stream, handle), id) = (self.stream(pick), Id::next());
        let operation = self.journal.operation(id, work);
        // A function with a value fails by a panic only.
        let operation = move || operation().unwrap_or_else(|text| panic!("{text}"));
        let future = if work.host {
            handle.call_host(operation)
        } else {
            handle.call(operation)
        };
        let mark = self.model.submit(stream, id, work.ends);
        if stream == 0 {
            self.model.reach(mark);
        }
        self.model.hold(stream);
        self.futures.push((
            id,
            Held {
                handle: future.unwrap(),
                mark,
            },
        ));
    }

    fn record(&mut self, pick: Pick, timed: bool) {
        let (stream, handle) = self.stream(pick);
        let event = if timed {
            handle.record_timed_event().unwrap()
        } else {
            handle.record_event()
        };
        self.model.hold(stream);
        self.events.push(Held {
            handle: event,
            mark: self.model.mark(stream),
        });
    }

    fn wait_event(&mut self, pick: Pick, event: Pick) {
        let (stream, handle) = self.stream(pick);
        if let Some(place) = at(&self.events, event) {
            let event = &self.events[place];
            handle.wait_event(&event.handle).unwrap();
            self.model.wait(stream, event.mark);
        }
    }

    fn wait_stream(&mut self, pick: Pick, other: Pick) {
        let ((stream, handle), (other, awaited)) = (self.stream(pick), self.stream(other));
        handle.wait_stream(&awaited).unwrap();
        self.model.wait(stream, self.model.mark(other));
    }

    fn synchronize(&mut self, pick: Pick, how: How) -> Result<(), String> {
        let (stream, handle) = self.stream(pick);
        let outcome = match how {
            How::Block => handle.synchronize(),
            How::Await => block_on(&handle),
            How::Poll => handle.synchronize_timeout(Duration::ZERO),
        };
        if has_passed(&outcome) {
            return Ok(());
        }
        let mark = self.model.mark(stream);
        self.model.reach(mark);
        compare(outcome, self.model.waited(mark))?;
        if let Some(origin) = self.model.failure(mark) {
            self.model.acknowledge(mark, origin);
        }
        handle
            .query_idle()
            .then_some(())
            .ok_or_else(|| "it is not idle".into())
    }

    fn synchronize_event(&mut self, pick: Pick, how: How) -> Result<(), String> {
        let Some(place) = at(&self.events, pick) else {
            return Ok(());
        };
        let Held { handle, mark } = &self.events[place];
        let outcome = match how {
            How::Block => handle.synchronize(),
            How::Await => block_on(handle),
            How::Poll => handle.synchronize_timeout(Duration::ZERO),
        };
        if has_passed(&outcome) {
            return Ok(());
        }
        self.model.reach(*mark);
        if !handle.query() {
            return Err("an event is not reached after a wait for it".into());
        }
        compare(outcome, self.model.waited(*mark))
    }

    fn take(&mut self, pick: Pick, how: How) -> Result<(), String> {
        let Some(place) = at(&self.futures, pick) else {
            return Ok(());
        };
        let (id, Held { handle, mark }) = self.futures.swap_remove(place);
        let outcome = match how {
            How::Block => handle.wait(),
            How::Await => block_on(handle),
            How::Poll => {
                let outcome = handle.wait_timeout(Duration::ZERO);
                if has_passed(&outcome) {
                    self.futures.push((id, Held { handle, mark }));
                    return Ok(());
                }
                outcome
            }
        };
        let expected = self.model.result(id, mark);
        compare(outcome, expected)?;
        if expected != Expected::Cancelled {
            self.model.reach(mark);
        }
        if expected == Expected::Failed(id) {
            self.model.acknowledge(mark, id);
        }
        self.model.let_go(mark.stream);
        Ok(())
    }

    fn cancel(&mut self, pick: Pick) -> Result<(), String> {
        let Some(place) = at(&self.futures, pick) else {
            return Ok(());
        };
        let (id, Held { handle, mark }) = &self.futures[place];
        let was = self.model.is_cancelled(*id);
        let cancelled = handle.cancel();
        if handle.is_cancelled() != cancelled {
            return Err(format!("{id:?}: cancel and is_cancelled disagree"));
        }
        match (was, cancelled) {
            (true, false) => Err(format!("{id:?} was cancelled and is not any more")),
            (false, true) if self.model.is_reached(*mark) => {
                Err(format!("{id:?} was cancelled after its end"))
            }
            (false, true) => {
                self.model.cancel(*mark);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn drop_stream(&mut self, pick: Pick) {
        let place = usize::from(pick) % self.streams.len();
        if place > 0 {
            let (stream, handle) = self.streams.swap_remove(place);
            self.model.let_go(stream);
            drop(handle);
        }
    }

    fn drop_event(&mut self, pick: Pick) {
        if let Some(place) = at(&self.events, pick) {
            let Held { handle, mark } = self.events.swap_remove(place);
            self.model.let_go(mark.stream);
            drop(handle);
        }
    }

    fn drop_future(&mut self, pick: Pick) {
        if let Some(place) = at(&self.futures, pick) {
            let (_, Held { handle, mark }) = self.futures.swap_remove(place);
            self.model.let_go(mark.stream);
            drop(handle);
        }
    }

    /// Lets go of all handles and checks what happened in all. What the model and the streams' names are.
    fn end(mut self) -> Result<(Model, Vec<String>), String> {
        self.synchronize(0, How::Block)?;
        while self.streams.len() > 1 {
            self.drop_stream(1);
        }
        while !self.events.is_empty() {
            self.drop_event(0);
        }
        while !self.futures.is_empty() {
            self.drop_future(0);
        }
        let reports = reports::take();
        self.model.check_runs(&self.journal.read()?)?;
        self.model.check_reports(&reports)?;
        Ok((self.model, self.names))
    }
}

fn run(program: &Program) -> Result<(), TestCaseError> {
    play(program).map(drop).map_err(TestCaseError::fail)
}

fn run_traced(program: &Program) -> Result<(), TestCaseError> {
    let name = format!("clika-programs-{}.json", std::process::id());
    let path = std::env::temp_dir().join(name);
    let trace = clika_runtime::trace(&path).unwrap();
    let checked = play(program).and_then(|(model, names)| {
        trace.stop().unwrap();
        traced::check(&path, &model, &names)
    });
    std::fs::remove_file(path).unwrap();
    checked.map_err(TestCaseError::fail)
}

fn play(program: &Program) -> Result<(Model, Vec<String>), String> {
    let _ = Stream::default_stream(Device::cpu()).unwrap().synchronize();
    reports::take();
    let world = stage::in_turns(
        World::new(),
        program.threads,
        &program.steps,
        World::take_step,
    );
    world.and_then(World::end)
}

#[test]
fn promise_01_to_10_programs_in_a_known_order_do_what_the_model_says() {
    reports::collect();
    check(2_000, any_program(), run);
}

#[test]
fn traces_of_programs_in_a_known_order_tell_what_the_model_says() {
    reports::collect();
    check(500, any_program(), run_traced);
}
