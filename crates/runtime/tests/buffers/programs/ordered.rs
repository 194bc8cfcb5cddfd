//! Programs whose calls take effect in one order, on several threads, against the model.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use clika_executor::sync::Mutex;
use clika_runtime::{Buffer, Error, Future, Stream, View, ViewMut, foreign};
use proptest::prelude::{Just, any, prop_oneof};
use proptest::strategy::Strategy;
use proptest::test_runner::TestCaseError;

use super::model::{Access, Act, Mix, Model, Outcome};
use super::{Id, check};
use crate::process::{AS_IT_IS, alone};
use crate::{CPU, default_stream, fresh, live_bytes, stream};

/// Picks one of what there is when the step is taken.
type Pick = u8;

/// Picks a range within what there is.
type Part = (u16, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Well,
    WithAnError,
    WithAPanic,
}

/// Which accesses a function has.
#[derive(Clone, Debug)]
enum Shape {
    Reads(Vec<Pick>),
    Writes(Vec<Pick>),
    Updates(Vec<Pick>),
    ReadWrite(Pick, Pick),
    ReadUpdate(Pick, Pick),
    All(Pick, Pick, Pick),
}

#[derive(Clone, Copy, Debug)]
struct Work {
    ends: Ends,
    host: bool,
    /// Rounds of doing nothing in particular, so that timings differ.
    length: u16,
    mix: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Fill(Pick, Pick, Option<Part>, u8, u64),
    CopyIn(Pick, Pick, Option<Part>, u8),
    Copy(Pick, Pick, Pick, Part, u16),
    CopyAll(Pick, Pick, Pick),
    CopyOut(Pick, Pick, Option<Part>),
    Take(Pick),
    Cancel(Pick),
    DropFuture(Pick),
    Run(Pick, Shape, Work),
    Kernel(Pick, Pick, Pick, bool, u8, u64),
    WaitStream(Pick, Pick),
    Synchronize(Pick),
    View(Pick),
    ViewMut(Pick, u16, u8),
    EndView(Pick),
    Replace(Pick),
}

/// The sizes of the buffers, and the steps in their order, each with the thread that takes it.
#[derive(Clone, Debug)]
struct Program {
    streams: usize,
    threads: usize,
    sizes: Vec<usize>,
    steps: Vec<(usize, Step)>,
}

fn any_work() -> impl Strategy<Value = Work> {
    let ends = prop_oneof![
        14 => Just(Ends::Well),
        1 => Just(Ends::WithAnError),
        1 => Just(Ends::WithAPanic),
    ];
    let length = prop_oneof![3 => 0..10_u16, 1 => 0..5_000_u16];
    (ends, proptest::bool::weighted(0.2), length, any::<u64>()).prop_map(
        |(ends, host, length, mix)| Work {
            ends,
            host,
            length,
            mix,
        },
    )
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let pick = any::<Pick>;
    let picks = || proptest::collection::vec(any::<Pick>(), 1..=3);
    prop_oneof![
        picks().prop_map(Shape::Reads),
        picks().prop_map(Shape::Writes),
        picks().prop_map(Shape::Updates),
        (pick(), pick()).prop_map(|(a, b)| Shape::ReadWrite(a, b)),
        (pick(), pick()).prop_map(|(a, b)| Shape::ReadUpdate(a, b)),
        (pick(), pick(), pick()).prop_map(|(a, b, c)| Shape::All(a, b, c)),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let pick = any::<Pick>;
    let part = any::<Part>;
    let perhaps = || proptest::option::of(any::<Part>());
    prop_oneof![
        6 => (pick(), pick(), perhaps(), 0..4_u8, any::<u64>())
            .prop_map(|(s, b, part, size, value)| Step::Fill(s, b, part, size, value)),
        6 => (pick(), pick(), perhaps(), any::<u8>())
            .prop_map(|(s, b, part, seed)| Step::CopyIn(s, b, part, seed)),
        3 => (pick(), pick(), pick(), part(), any::<u16>())
            .prop_map(|(s, a, b, part, to)| Step::Copy(s, a, b, part, to)),
        3 => (pick(), pick(), pick()).prop_map(|(s, a, b)| Step::CopyAll(s, a, b)),
        5 => (pick(), pick(), perhaps()).prop_map(|(s, b, part)| Step::CopyOut(s, b, part)),
        3 => pick().prop_map(Step::Take),
        3 => pick().prop_map(Step::Cancel),
        1 => pick().prop_map(Step::DropFuture),
        10 => (pick(), any_shape(), any_work())
            .prop_map(|(s, shape, work)| Step::Run(s, shape, work)),
        3 => (pick(), pick(), pick(), any::<bool>(), any::<u8>(), any::<u64>())
            .prop_map(|(s, a, b, update, grain, mix)| Step::Kernel(s, a, b, update, grain, mix)),
        1 => (pick(), pick()).prop_map(|(s, other)| Step::WaitStream(s, other)),
        2 => pick().prop_map(Step::Synchronize),
        1 => pick().prop_map(Step::View),
        1 => (pick(), any::<u16>(), any::<u8>()).prop_map(|(b, at, byte)| Step::ViewMut(b, at, byte)),
        3 => pick().prop_map(Step::EndView),
        1 => pick().prop_map(Step::Replace),
    ]
}

fn any_program() -> impl Strategy<Value = Program> {
    let size = prop_oneof![
        2 => Just(0_usize),
        14 => 1..200_usize,
        4 => Just(64_usize),
        1 => 4_097..6_000_usize,
    ];
    let sizes = proptest::collection::vec(size, 1..=4);
    (2..=4_usize, 1..=3_usize, sizes).prop_flat_map(|(streams, threads, sizes)| {
        let steps = proptest::collection::vec((0..threads, any_step()), 1..40);
        steps.prop_map(move |steps| Program {
            streams,
            threads,
            sizes: sizes.clone(),
            steps,
        })
    })
}

struct Pending {
    entry: usize,
    future: Future<Vec<u8>>,
}

/// A view that is kept.
enum Kept {
    Reading(#[expect(dead_code, reason = "it is kept")] View<u8>),
    Writing(#[expect(dead_code, reason = "it is kept")] ViewMut<u8>),
}

/// The program's handles. Stream 0 is the default one.
struct World {
    streams: Vec<Stream>,
    buffers: Vec<(usize, Buffer)>,
    futures: Vec<Pending>,
    views: Vec<(usize, Kept)>,
    /// Operations of which a wait has shown that they are over.
    over: BTreeMap<usize, usize>,
    model: Model,
}

type Checked = Result<(), String>;

fn verify(holds: bool, problem: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(problem()) }
}

/// Checks an outcome, and what came of it.
fn compare<T: AsRef<[u8]>>(outcome: &Result<T, Error>, expected: &Outcome) -> Checked {
    let fits = match (outcome, expected) {
        (Ok(bytes), Outcome::Well(known)) => {
            let bytes = bytes.as_ref();
            bytes.len() == known.len()
                && bytes
                    .iter()
                    .zip(known)
                    .all(|(byte, known)| known.is_none_or(|known| known == *byte))
        }
        (Err(error), Outcome::Failed(id)) => {
            error.is_operation() && Id::in_error(error) == Some(*id)
        }
        (Err(error), Outcome::Skipped(id)) => {
            error.is_cancelled() && Id::in_error(error) == Some(*id)
        }
        (Err(error), Outcome::Cancelled) => {
            error.is_cancelled() && std::error::Error::source(error).is_none()
        }
        _ => false,
    };
    verify(fits, || match outcome {
        Ok(bytes) => format!("{:?}, but {expected:?}", bytes.as_ref()),
        Err(error) => format!("{error:?}, but {expected:?}"),
    })
}

/// The same for outcomes without bytes.
fn compare_end(outcome: Result<(), Error>, expected: &Outcome) -> Checked {
    let expected = match expected {
        Outcome::Well(_) => Outcome::Well(vec![]),
        other => other.clone(),
    };
    compare(&outcome.map(|()| []), &expected)
}

fn refused<T>(outcome: &Result<T, Error>) -> bool {
    outcome.as_ref().is_err_and(Error::is_invalid_argument)
}

/// The function of a run.
fn mixed(
    work: Work,
    id: Id,
    reads: &[&[u8]],
    writes: Vec<&mut [u8]>,
    updates: Vec<&mut [u8]>,
) -> Result<(), String> {
    black_box((0..work.length).fold(0, |sum, n| black_box(sum ^ n)));
    let old = updates.iter().flat_map(|bytes| bytes.iter());
    let read = reads.iter().flat_map(|bytes| bytes.iter()).chain(old);
    let mix = read.fold(Mix(work.mix), |mix, byte| mix.add(*byte));
    let mut slot = reads.len();
    for bytes in writes {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = mix.byte(slot, at);
        }
        slot += 1;
    }
    for bytes in updates {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte ^= mix.byte(slot, at);
        }
        slot += 1;
    }
    match work.ends {
        Ends::Well => Ok(()),
        Ends::WithAnError => Err(id.to_string()),
        Ends::WithAPanic => panic!("{id}"),
    }
}

/// Submits a run on whichever lane.
macro_rules! run {
    ($stream:expr, $work:expr, $id:expr, $accesses:expr, $slices:pat => $reads:expr, $writes:expr, $updates:expr) => {{
        let (work, id) = ($work, $id);
        if work.host {
            $stream.run_host($accesses, move |$slices| {
                mixed(work, id, $reads, $writes, $updates)
            })
        } else {
            $stream.run($accesses, move |$slices| {
                mixed(work, id, $reads, $writes, $updates)
            })
        }
    }};
}

impl World {
    fn new(program: &Program) -> Self {
        let mut streams = vec![default_stream()];
        streams.resize_with(program.streams, stream);
        let mut model = Model::new(program.streams);
        let create = |nbytes: &usize| (model.create(*nbytes), fresh(*nbytes));
        Self {
            streams,
            buffers: program.sizes.iter().map(create).collect(),
            futures: vec![],
            views: vec![],
            over: BTreeMap::new(),
            model,
        }
    }

    fn stream(&self, pick: Pick) -> (usize, Stream) {
        let place = usize::from(pick) % self.streams.len();
        (place, self.streams[place].clone())
    }

    fn buffer(&self, pick: Pick) -> (usize, Buffer) {
        self.buffers[usize::from(pick) % self.buffers.len()].clone()
    }

    fn take_step(&mut self, step: &Step) -> Checked {
        match step {
            Step::Fill(s, b, part, size, value) => self.fill(*s, *b, *part, *size, *value),
            Step::CopyIn(s, b, part, seed) => self.copy_in(*s, *b, *part, *seed),
            Step::Copy(s, a, b, part, to) => self.copy(*s, *a, *b, *part, *to),
            Step::CopyAll(s, a, b) => self.copy_all(*s, *a, *b),
            Step::CopyOut(s, b, part) => self.copy_out(*s, *b, *part),
            Step::Take(pick) => self.take(*pick),
            Step::Cancel(pick) => self.cancel(*pick),
            Step::DropFuture(pick) => {
                if !self.futures.is_empty() {
                    let place = usize::from(*pick) % self.futures.len();
                    self.futures.swap_remove(place);
                }
                Ok(())
            }
            Step::Run(s, shape, work) => self.run(*s, shape, *work),
            Step::Kernel(s, a, b, update, grain, mix) => {
                self.kernel(*s, (*a, *b), *update, *grain, *mix)
            }
            Step::WaitStream(s, other) => {
                let ((s, stream), (other, awaited)) = (self.stream(*s), self.stream(*other));
                stream.wait_stream(&awaited).unwrap();
                self.model.wait(s, other);
                Ok(())
            }
            Step::Synchronize(s) => self.synchronize(usize::from(*s) % self.streams.len()),
            Step::View(b) => self.view(*b),
            Step::ViewMut(b, at, byte) => self.view_mut(*b, *at, *byte),
            Step::EndView(pick) => {
                if !self.views.is_empty() {
                    let place = usize::from(*pick) % self.views.len();
                    self.end_view(place);
                }
                Ok(())
            }
            Step::Replace(b) => {
                let place = usize::from(*b) % self.buffers.len();
                let nbytes = self.buffers[place].1.nbytes();
                self.buffers[place] = (self.model.create(nbytes), fresh(nbytes));
                Ok(())
            }
        }
    }

    /// What was picked of a buffer, in whole patterns.
    fn part(&self, buffer: usize, part: Option<Part>, size: usize) -> std::ops::Range<usize> {
        let nbytes = self.model.nbytes(buffer);
        let Some((start, length)) = part else {
            return 0..nbytes / size * size;
        };
        let start = usize::from(start) % (nbytes + 1);
        let length = usize::from(length) % (nbytes - start + 1);
        start..start + length / size * size
    }

    /// The claim of what writes a range.
    fn written(&self, buffer: usize, length: usize) -> Vec<(usize, Access)> {
        let access = if length == self.model.nbytes(buffer) {
            Access::Overwrite
        } else {
            Access::Patch
        };
        if length == 0 {
            vec![]
        } else {
            vec![(buffer, access)]
        }
    }

    /// Notes what was submitted, and checks what the call returned.
    fn note(
        &mut self,
        stream: usize,
        claims: &[(usize, Access)],
        act: Act,
        outcome: Result<(), Error>,
    ) -> Checked {
        if self.model.refuses(claims) {
            return verify(refused(&outcome), || format!("{outcome:?} is no refusal"));
        }
        let entry = self.model.submit(stream, claims, act);
        if stream > 0 {
            return outcome.map_err(|error| error.to_string());
        }
        // On the default stream it has run, and a failure of its own is acknowledged.
        let expected = self.model.evaluate().outcome(entry).clone();
        compare_end(outcome, &expected)?;
        if matches!(expected, Outcome::Failed(_)) {
            self.model.acknowledge_of(entry);
        }
        Ok(())
    }

    fn fill(&mut self, s: Pick, b: Pick, part: Option<Part>, size: u8, value: u64) -> Checked {
        let ((s, stream), (b, buffer)) = (self.stream(s), self.buffer(b));
        let size = 1 << size;
        let range = self.part(b, part, size);
        let outcome = match size {
            1 => stream.fill(&buffer, range.clone(), value as u8),
            2 => stream.fill(&buffer, range.clone(), value as u16),
            4 => stream.fill(&buffer, range.clone(), value as u32),
            _ => stream.fill(&buffer, range.clone(), value),
        };
        let claims = self.written(b, range.len());
        let pattern = value.to_ne_bytes()[..size].to_vec();
        self.note(s, &claims, Act::Fill(range, pattern), outcome)
    }

    fn copy_in(&mut self, s: Pick, b: Pick, part: Option<Part>, seed: u8) -> Checked {
        let ((s, stream), (b, buffer)) = (self.stream(s), self.buffer(b));
        let range = self.part(b, part, 1);
        let mut data: Vec<u8> = range
            .clone()
            .map(|at| Mix(seed.into()).byte(0, at))
            .collect();
        let outcome = stream.copy_in(&data, &buffer, range.start);
        let act = Act::In(range.start, data.clone());
        // It has been read.
        data.fill(0xAA);
        let claims = self.written(b, range.len());
        self.note(s, &claims, act, outcome)
    }

    fn copy(&mut self, s: Pick, a: Pick, b: Pick, part: Part, to: u16) -> Checked {
        let ((s, stream), (a, source), (b, target)) =
            (self.stream(s), self.buffer(a), self.buffer(b));
        let from = self.part(a, Some(part), 1);
        let to = usize::from(to) % (target.nbytes() + 1);
        let length = from.len().min(target.nbytes() - to);
        let outcome = stream.copy(&source, from.start, &target, to, length);
        self.note_copy(s, (a, from.start), (b, to), length, outcome)
    }

    fn copy_all(&mut self, s: Pick, a: Pick, b: Pick) -> Checked {
        let ((s, stream), (a, source), (b, target)) =
            (self.stream(s), self.buffer(a), self.buffer(b));
        let length = source.nbytes().min(target.nbytes());
        let outcome = stream.copy(&source, 0, &target, 0, length);
        self.note_copy(s, (a, 0), (b, 0), length, outcome)
    }

    fn note_copy(
        &mut self,
        s: usize,
        (a, from): (usize, usize),
        (b, to): (usize, usize),
        length: usize,
        outcome: Result<(), Error>,
    ) -> Checked {
        let overlaps = a == b && from < to + length && to < from + length;
        if overlaps {
            return verify(refused(&outcome), || "ranges overlap".into());
        }
        let mut claims = vec![(a, Access::Read)];
        claims.extend(self.written(b, length));
        if length == 0 {
            claims.clear();
        } else if a == b {
            claims = vec![(a, Access::Update)];
        }
        self.note(s, &claims, Act::Copy { from, to, length }, outcome)
    }

    fn copy_out(&mut self, s: Pick, b: Pick, part: Option<Part>) -> Checked {
        let ((s, stream), (b, buffer)) = (self.stream(s), self.buffer(b));
        let range = self.part(b, part, 1);
        let claims = if range.is_empty() {
            vec![]
        } else {
            vec![(b, Access::Read)]
        };
        let outcome = stream.copy_out::<u8>(&buffer, range.clone());
        if self.model.refuses(&claims) {
            return verify(refused(&outcome), || "it was not refused".into());
        }
        let entry = self.model.submit(s, &claims, Act::Out(range));
        let future = outcome.map_err(|error| error.to_string())?;
        self.futures.push(Pending { entry, future });
        Ok(())
    }

    fn take(&mut self, pick: Pick) -> Checked {
        if self.futures.is_empty() {
            return Ok(());
        }
        let place = usize::from(pick) % self.futures.len();
        let Pending { entry, future } = self.futures.swap_remove(place);
        let outcome = future.wait();
        let expected = self.model.evaluate().outcome(entry).clone();
        compare(&outcome, &expected)?;
        if matches!(expected, Outcome::Failed(_)) {
            self.model.acknowledge_of(entry);
        }
        Ok(())
    }

    fn cancel(&mut self, pick: Pick) -> Checked {
        if self.futures.is_empty() {
            return Ok(());
        }
        let Pending { entry, future } = &self.futures[usize::from(pick) % self.futures.len()];
        if !future.cancel() {
            return verify(!future.is_cancelled(), || {
                "cancel and is_cancelled disagree".into()
            });
        }
        let stream = self.model.stream_of(*entry);
        let over = self.over.get(&stream).is_some_and(|over| entry < over);
        // One that was cancelled before may be cancelled again.
        let was = *self.model.evaluate().outcome(*entry) == Outcome::Cancelled;
        self.model.cancel(*entry);
        verify(was || (stream > 0 && !over), || {
            "it was cancelled after its end".into()
        })
    }

    fn run(&mut self, s: Pick, shape: &Shape, work: Work) -> Checked {
        let ((s, stream), id) = (self.stream(s), Id::next());
        let all = |picks: &[Pick]| -> Vec<(usize, Buffer)> {
            picks.iter().map(|pick| self.buffer(*pick)).collect()
        };
        let claims_of = |list: &[(usize, Buffer)], access| -> Vec<(usize, Access)> {
            list.iter().map(|(buffer, _)| (*buffer, access)).collect()
        };
        let (outcome, claims) = match shape {
            Shape::Reads(picks) => {
                let list = all(picks);
                let accesses: Vec<_> = list.iter().map(|(_, it)| it.read::<u8>()).collect();
                let outcome = run!(stream, work, id, accesses, r => &r, vec![], vec![]);
                (outcome, claims_of(&list, Access::Read))
            }
            Shape::Writes(picks) => {
                let list = all(picks);
                let accesses: Vec<_> = list.iter().map(|(_, it)| it.write::<u8>()).collect();
                let outcome = run!(stream, work, id, accesses, w => &[], w, vec![]);
                (outcome, claims_of(&list, Access::Overwrite))
            }
            Shape::Updates(picks) => {
                let list = all(picks);
                let accesses: Vec<_> = list.iter().map(|(_, it)| it.update::<u8>()).collect();
                let outcome = run!(stream, work, id, accesses, u => &[], vec![], u);
                (outcome, claims_of(&list, Access::Update))
            }
            Shape::ReadWrite(a, b) => {
                let ((a, source), (b, target)) = (self.buffer(*a), self.buffer(*b));
                let accesses = (source.read::<u8>(), target.write::<u8>());
                let outcome = run!(stream, work, id, accesses, (r, w) => &[r], vec![w], vec![]);
                (outcome, vec![(a, Access::Read), (b, Access::Overwrite)])
            }
            Shape::ReadUpdate(a, b) => {
                let ((a, source), (b, target)) = (self.buffer(*a), self.buffer(*b));
                let accesses = (source.read::<u8>(), target.update::<u8>());
                let outcome = run!(stream, work, id, accesses, (r, u) => &[r], vec![], vec![u]);
                (outcome, vec![(a, Access::Read), (b, Access::Update)])
            }
            Shape::All(a, b, c) => {
                let ((a, source), (b, target), (c, both)) =
                    (self.buffer(*a), self.buffer(*b), self.buffer(*c));
                let accesses = (
                    source.read::<u8>(),
                    target.write::<u8>(),
                    both.update::<u8>(),
                );
                let outcome = run!(stream, work, id, accesses, (r, w, u) => &[r], vec![w], vec![u]);
                let claims = [
                    (a, Access::Read),
                    (b, Access::Overwrite),
                    (c, Access::Update),
                ];
                (outcome, claims.to_vec())
            }
        };
        let act = match work.ends {
            Ends::Well => Act::Run(Mix(work.mix)),
            _ => Act::Fail(id),
        };
        self.note(s, &claims, act, outcome)
    }

    fn kernel(
        &mut self,
        s: Pick,
        (a, b): (Pick, Pick),
        update: bool,
        grain: u8,
        mix: u64,
    ) -> Checked {
        let ((s, stream), (a, source), (b, target)) =
            (self.stream(s), self.buffer(a), self.buffer(b));
        let (count, grain, mix) = (target.nbytes(), usize::from(grain), Mix(mix));
        let new = move |x: &[u8], at: usize| {
            mix.add(x.get(at % x.len().max(1)).copied().unwrap_or(0))
                .byte(0, at)
        };
        let (outcome, access) = if update {
            let accesses = (source.read::<u8>(), target.update::<u8>());
            let kernel = move |range: std::ops::Range<usize>, (x, y): (&[u8], &mut [u8])| {
                for (y, at) in y.iter_mut().zip(range) {
                    *y ^= new(x, at);
                }
            };
            (
                stream.parallel_for(count, grain, accesses, kernel),
                Access::Update,
            )
        } else {
            let accesses = (source.read::<u8>(), target.write::<u8>());
            let kernel = move |range: std::ops::Range<usize>, (x, y): (&[u8], &mut [u8])| {
                for (y, at) in y.iter_mut().zip(range) {
                    *y = new(x, at);
                }
            };
            (
                stream.parallel_for(count, grain, accesses, kernel),
                Access::Overwrite,
            )
        };
        self.note(
            s,
            &[(a, Access::Read), (b, access)],
            Act::Kernel(mix),
            outcome,
        )
    }

    fn synchronize(&mut self, s: usize) -> Checked {
        let outcome = self.streams[s].synchronize();
        self.over.insert(s, self.model.length());
        let Some(id) = self.model.failure(s) else {
            return compare_end(outcome, &Outcome::Well(vec![]));
        };
        compare_end(outcome, &Outcome::Failed(id))?;
        self.model.acknowledge(s);
        Ok(())
    }

    fn view(&mut self, b: Pick) -> Checked {
        let (b, buffer) = self.buffer(b);
        let refuses = self.model.refuses(&[(b, Access::Read)]);
        let outcome = buffer.view::<u8>();
        if refuses {
            return verify(refused(&outcome), || "a view was not refused".into());
        }
        let content = self.model.evaluate().content(b);
        compare(&outcome.as_deref().map_err(Error::clone), &content)?;
        if let Ok(view) = outcome {
            self.model.begin_view(b, false);
            self.views.push((b, Kept::Reading(view)));
        }
        Ok(())
    }

    fn view_mut(&mut self, b: Pick, at: u16, byte: u8) -> Checked {
        let (b, buffer) = self.buffer(b);
        let refuses = self.model.refuses(&[(b, Access::Patch)]);
        let outcome = buffer.view_mut::<u8>();
        if refuses {
            return verify(refused(&outcome), || "a view was not refused".into());
        }
        let content = self.model.evaluate().content(b);
        compare(&outcome.as_deref().map_err(Error::clone), &content)?;
        self.model.is_written(b);
        if let Ok(mut view) = outcome {
            if !view.is_empty() {
                let at = usize::from(at) % view.len();
                view[at] = byte;
                self.model.poke(b, at, byte);
            }
            self.model.begin_view(b, true);
            self.views.push((b, Kept::Writing(view)));
        }
        Ok(())
    }

    fn end_view(&mut self, place: usize) {
        let (buffer, view) = self.views.swap_remove(place);
        self.model
            .end_view(buffer, matches!(view, Kept::Writing(_)));
    }

    /// Looks at everything and lets go of it.
    fn end(mut self) -> Checked {
        while !self.views.is_empty() {
            self.end_view(0);
        }
        while !self.futures.is_empty() {
            self.take(0)?;
        }
        for s in 0..self.streams.len() {
            self.synchronize(s)?;
        }
        let state = self.model.evaluate();
        for (b, buffer) in &self.buffers {
            let outcome = buffer.to_vec::<u8>();
            if buffer.nbytes() == 0 {
                // Nothing is read.
                compare(&outcome, &Outcome::Well(vec![]))?;
            } else if self.model.refuses(&[(*b, Access::Read)]) {
                verify(refused(&outcome), || "it was not refused".into())?;
            } else {
                compare(&outcome, &state.content(*b))
                    .map_err(|problem| format!("buffer {b} at the end: {problem}"))?;
            }
        }
        drop(self);
        verify(live_bytes() == 0, || format!("{:?}", CPU.memory_stats()))
    }
}

/// The world and the turns of the threads: steps are taken one after the other.
struct Stage {
    world: Mutex<Result<World, String>>,
    turns: Vec<Sender<()>>,
}

impl Stage {
    /// Takes the steps of one thread.
    fn play(&self, thread: usize, turn: &Receiver<()>, program: &Program) {
        for (place, (by, step)) in program.steps.iter().enumerate() {
            if *by == thread {
                turn.recv().unwrap();
                let mut world = self.world.lock();
                if let Ok(all) = &mut *world
                    && let Err(problem) = all.take_step(step)
                {
                    *world = Err(format!("step {place}, {step:?}: {problem}"));
                }
                drop(world);
                self.pass_on(place + 1, program);
            }
        }
    }

    /// The next step is that at `place`.
    fn pass_on(&self, place: usize, program: &Program) {
        if let Some((by, _)) = program.steps.get(place) {
            self.turns[*by].send(()).unwrap();
        }
    }
}

fn run(program: &Program) -> Result<(), TestCaseError> {
    let (turns, own): (_, Vec<_>) = (0..program.threads).map(|_| channel()).unzip();
    let world = Mutex::new(Ok(World::new(program)));
    let stage = Stage { world, turns };
    stage.pass_on(0, program);
    thread::scope(|scope| {
        let stage = &stage;
        let play = |(thread, turn)| scope.spawn(move || stage.play(thread, &turn, program));
        let threads: Vec<_> = own.into_iter().enumerate().map(play).collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    let outcome = stage.world.into_inner().and_then(World::end);
    // What a program that went wrong left behind must not harm the next one.
    assert!(foreign::executor().unwrap().drain(None));
    while default_stream().synchronize().is_err() {}
    outcome.map_err(TestCaseError::fail)
}

#[test]
fn promise_04_06_07_programs_leave_the_bytes_and_failures_that_the_model_says() {
    alone(AS_IT_IS, || check(8_000, any_program(), run));
}
