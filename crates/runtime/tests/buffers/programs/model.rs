//! The sequential model: what a program whose order of calls is known leaves in its buffers, and
//! who fails with what.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::work::Id;

/// Bytes; those that a partial write left are unknown.
pub(super) type Bytes = Vec<Option<u8>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Overwrite,
    Patch,
    Update,
}

impl Access {
    fn writes(self) -> bool {
        self != Self::Read
    }
}

/// What a run's function computes, in the model and in fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mix(pub(super) u64);

impl Mix {
    pub(super) fn add(self, byte: u8) -> Self {
        Self((self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    }

    pub(super) fn byte(self, slot: usize, at: usize) -> u8 {
        let mixed = self.0 ^ ((slot as u64) << 32) ^ at as u64;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }
}

/// What an operation does to the bytes of its claims.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Fill(Range<usize>, Vec<u8>),
    In(usize, Vec<u8>),
    /// From the first claim, or the only one, to the last.
    Copy {
        from: usize,
        to: usize,
        length: usize,
    },
    Out(Range<usize>),
    Run(Mix),
    /// From the first claim to the second, byte by byte.
    Kernel(Mix),
    Fail(Id),
}

enum What {
    Operation {
        claims: Vec<(usize, Access)>,
        act: Act,
        cancelled: bool,
    },
    /// For this place of another stream's timeline.
    Wait {
        stream: usize,
        epoch: usize,
        n: usize,
    },
    /// The host writes one byte through a view.
    Poke { buffer: usize, at: usize, byte: u8 },
}

struct Entry {
    stream: usize,
    epoch: usize,
    what: What,
}

struct Buffer {
    nbytes: usize,
    written: bool,
    views: usize,
    writable_views: usize,
}

/// What an operation amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Well(Bytes),
    Failed(Id),
    Skipped(Id),
    Cancelled,
}

#[derive(Clone)]
struct Content {
    bytes: Bytes,
    failure: Option<Id>,
}

/// What is so behind the last entry.
pub(super) struct State {
    contents: Vec<Content>,
    /// The first failure of each epoch of each stream, and at which entry it is.
    failures: BTreeMap<(usize, usize), (usize, Id)>,
    outcomes: Vec<Outcome>,
}

/// The state of the model. The default stream is number 0.
pub(super) struct Model {
    buffers: Vec<Buffer>,
    epochs: Vec<usize>,
    entries: Vec<Entry>,
}

impl Model {
    pub(super) fn new(streams: usize) -> Self {
        Self {
            buffers: vec![],
            epochs: vec![0; streams],
            entries: vec![],
        }
    }

    pub(super) fn create(&mut self, nbytes: usize) -> usize {
        self.buffers.push(Buffer {
            nbytes,
            written: nbytes == 0,
            views: 0,
            writable_views: 0,
        });
        self.buffers.len() - 1
    }

    pub(super) fn nbytes(&self, buffer: usize) -> usize {
        self.buffers[buffer].nbytes
    }

    /// Whether an operation with these claims must be an invalid argument.
    pub(super) fn refuses(&self, claims: &[(usize, Access)]) -> bool {
        let conflicts = |&(buffer, access): &(usize, Access)| {
            let it = &self.buffers[buffer];
            let needs_bytes = matches!(access, Access::Read | Access::Update);
            it.writable_views > 0
                || (access.writes() && it.views > 0)
                || (needs_bytes && !it.written)
        };
        let twice = |(place, claim): (usize, &(usize, Access))| {
            let others = claims[..place].iter();
            let mut same = others.filter(|other| other.0 == claim.0);
            same.any(|other| other.1.writes() || claim.1.writes())
        };
        claims.iter().any(conflicts) || claims.iter().enumerate().any(twice)
    }

    /// The number of the entry.
    pub(super) fn submit(&mut self, stream: usize, claims: &[(usize, Access)], act: Act) -> usize {
        for (buffer, access) in claims {
            self.buffers[*buffer].written |= access.writes();
        }
        self.push(
            stream,
            What::Operation {
                claims: claims.to_vec(),
                act,
                cancelled: false,
            },
        )
    }

    pub(super) fn wait(&mut self, stream: usize, awaited: usize) {
        if stream != awaited {
            let what = What::Wait {
                stream: awaited,
                epoch: self.epochs[awaited],
                n: self.entries.len(),
            };
            self.push(stream, what);
        }
    }

    fn push(&mut self, stream: usize, what: What) -> usize {
        let epoch = self.epochs[stream];
        self.entries.push(Entry {
            stream,
            epoch,
            what,
        });
        self.entries.len() - 1
    }

    pub(super) fn cancel(&mut self, entry: usize) {
        if let What::Operation { cancelled, .. } = &mut self.entries[entry].what {
            *cancelled = true;
        }
    }

    /// The failure of the epoch that this entry is in was returned by what acknowledges.
    pub(super) fn acknowledge_of(&mut self, entry: usize) {
        let Entry { stream, epoch, .. } = self.entries[entry];
        if self.epochs[stream] == epoch {
            self.epochs[stream] += 1;
        }
    }

    pub(super) fn acknowledge(&mut self, stream: usize) {
        self.epochs[stream] += 1;
    }

    /// How many entries there are.
    pub(super) fn length(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn stream_of(&self, entry: usize) -> usize {
        self.entries[entry].stream
    }

    pub(super) fn begin_view(&mut self, buffer: usize, writable: bool) {
        let it = &mut self.buffers[buffer];
        it.views += 1;
        it.writable_views += usize::from(writable);
    }

    pub(super) fn end_view(&mut self, buffer: usize, writable: bool) {
        let it = &mut self.buffers[buffer];
        it.views -= 1;
        it.writable_views -= usize::from(writable);
    }

    /// A view for writing was asked for: from here on there is something to read.
    pub(super) fn is_written(&mut self, buffer: usize) {
        self.buffers[buffer].written = true;
    }

    pub(super) fn poke(&mut self, buffer: usize, at: usize, byte: u8) {
        self.push(0, What::Poke { buffer, at, byte });
    }

    /// The failure that a stream has now.
    pub(super) fn failure(&self, stream: usize) -> Option<Id> {
        let failures = self.evaluate().failures;
        failures
            .get(&(stream, self.epochs[stream]))
            .map(|failed| failed.1)
    }

    /// Entries refer to earlier ones only, so one pass in the order of submission tells.
    pub(super) fn evaluate(&self) -> State {
        let content = |buffer: &Buffer| Content {
            bytes: vec![None; buffer.nbytes],
            failure: None,
        };
        let mut state = State {
            contents: self.buffers.iter().map(content).collect(),
            failures: BTreeMap::new(),
            outcomes: vec![],
        };
        for (place, entry) in self.entries.iter().enumerate() {
            let outcome = state.take(place, entry);
            state.outcomes.push(outcome);
        }
        state
    }
}

impl State {
    pub(super) fn outcome(&self, entry: usize) -> &Outcome {
        &self.outcomes[entry]
    }

    /// What a buffer holds.
    pub(super) fn content(&self, buffer: usize) -> Outcome {
        let content = &self.contents[buffer];
        match content.failure {
            Some(id) => Outcome::Failed(id),
            None => Outcome::Well(content.bytes.clone()),
        }
    }

    fn take(&mut self, place: usize, entry: &Entry) -> Outcome {
        let key = (entry.stream, entry.epoch);
        let failed = self.failures.get(&key).map(|failed| failed.1);
        let outcome = match &entry.what {
            What::Poke { buffer, at, byte } => {
                self.contents[*buffer].bytes[*at] = Some(*byte);
                return Outcome::Well(vec![]);
            }
            What::Operation {
                cancelled: true, ..
            } => return Outcome::Cancelled,
            What::Operation { claims, act, .. } => self.perform(claims, act, failed),
            What::Wait { stream, epoch, n } => match self.failures.get(&(*stream, *epoch)) {
                Some((at, id)) if at < n => Outcome::Failed(*id),
                _ => return Outcome::Well(vec![]),
            },
        };
        if let Outcome::Failed(id) = outcome {
            self.failures.entry(key).or_insert((place, id));
        }
        outcome
    }

    fn perform(&mut self, claims: &[(usize, Access)], act: &Act, failed: Option<Id>) -> Outcome {
        let passed = claims
            .iter()
            .filter(|claim| claim.1 != Access::Overwrite)
            .find_map(|claim| self.contents[claim.0].failure);
        let own = match act {
            Act::Fail(id) => Some(*id),
            _ => None,
        };
        if let Some(id) = failed.or(passed).or(own) {
            for (buffer, _) in claims.iter().filter(|claim| claim.1.writes()) {
                let content = &mut self.contents[*buffer];
                content.failure = (!content.bytes.is_empty()).then_some(id);
            }
            return match failed {
                Some(id) => Outcome::Skipped(id),
                None => Outcome::Failed(id),
            };
        }
        let out = self.act(claims, act);
        for (buffer, _) in claims.iter().filter(|claim| claim.1 == Access::Overwrite) {
            self.contents[*buffer].failure = None;
        }
        Outcome::Well(out)
    }

    fn act(&mut self, claims: &[(usize, Access)], act: &Act) -> Bytes {
        let (Some(&(first, _)), Some(&(last, access))) = (claims.first(), claims.last()) else {
            return vec![];
        };
        match act {
            Act::Fill(range, pattern) => {
                let bytes = pattern.iter().copied().map(Some).cycle();
                let target = &mut self.contents[first].bytes[range.clone()];
                target
                    .iter_mut()
                    .zip(bytes)
                    .for_each(|(to, from)| *to = from);
            }
            Act::In(offset, data) => {
                let target = &mut self.contents[first].bytes[*offset..];
                target
                    .iter_mut()
                    .zip(data)
                    .for_each(|(to, from)| *to = Some(*from));
            }
            Act::Copy { from, to, length } => {
                let bytes = self.contents[first].bytes[*from..from + length].to_vec();
                self.contents[last].bytes[*to..to + length].clone_from_slice(&bytes);
            }
            Act::Out(range) => return self.contents[first].bytes[range.clone()].to_vec(),
            Act::Run(mix) => self.run(claims, *mix),
            Act::Kernel(mix) => {
                let source = self.contents[first].bytes.clone();
                let target = &mut self.contents[last].bytes;
                for (at, byte) in target.iter_mut().enumerate() {
                    let read = source.get(at % source.len().max(1)).copied();
                    let new = read
                        .unwrap_or(Some(0))
                        .map(|read| mix.add(read).byte(0, at));
                    *byte = match access {
                        Access::Update => byte.zip(new).map(|(old, new)| old ^ new),
                        _ => new,
                    };
                }
            }
            Act::Fail(_) => unreachable!("told before"),
        }
        vec![]
    }

    fn run(&mut self, claims: &[(usize, Access)], mix: Mix) {
        let read = claims.iter().filter(|claim| claim.1 != Access::Overwrite);
        let bytes = read.flat_map(|claim| self.contents[claim.0].bytes.iter());
        let mix = bytes
            .copied()
            .try_fold(mix, |mix, byte| byte.map(|byte| mix.add(byte)));
        for (slot, (buffer, access)) in claims.iter().enumerate() {
            for (at, byte) in self.contents[*buffer].bytes.iter_mut().enumerate() {
                let new = mix.map(|mix| mix.byte(slot, at));
                match access {
                    Access::Read => {}
                    Access::Update => *byte = byte.zip(new).map(|(old, new)| old ^ new),
                    Access::Overwrite | Access::Patch => *byte = new,
                }
            }
        }
    }
}
