//! Traces: each operation once, with times and waits as the program itself saw them.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[cfg(unix)]
#[path = "shared/child.rs"]
#[expect(dead_code, reason = "other tests use all of it")]
mod child;
#[path = "shared/process.rs"]
#[expect(dead_code, reason = "other tests use all of it")]
mod process;
#[path = "shared/watchdog.rs"]
mod watchdog;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clika_executor::sync::Mutex;
use clika_runtime::{Buffer, Device, Stream, foreign, trace};
use serde_json::Value;

use crate::process::{AS_IT_IS, alone};
use crate::watchdog::watch;

const CPU: Device = Device::cpu();

/// A file that is gone with this.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let name = format!("clika-trace-{}-{name}.json", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn read(&self) -> Vec<Value> {
        read(&self.0)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The events of a file that is complete.
fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A slice of a trace.
#[derive(Clone, Debug)]
struct Slice {
    track: u64,
    begun: f64,
    ended: f64,
    name: String,
    category: String,
    args: Value,
}

impl Slice {
    fn of(event: &Value) -> Self {
        let number = |name: &str| event[name].as_f64().unwrap();
        let text = |name: &str| event[name].as_str().unwrap().to_owned();
        Self {
            track: event["tid"].as_u64().unwrap(),
            begun: number("ts"),
            ended: number("ts") + number("dur"),
            name: text("name"),
            category: text("cat"),
            args: event["args"].clone(),
        }
    }

    fn n(&self) -> u64 {
        self.args["n"].as_u64().unwrap()
    }

    fn is_at(&self, time: f64) -> bool {
        // Times have three digits behind the point.
        (self.begun - 0.0015..=self.ended + 0.0015).contains(&time)
    }
}

fn of_phase<'a>(events: &'a [Value], phase: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["ph"] == phase)
}

/// The slices of the stream with this name, in order, and without those of waits.
fn work_of(events: &[Value], name: &str) -> Vec<Slice> {
    slices_of(events, name)
        .into_iter()
        .filter(|slice| slice.category != "wait")
        .collect()
}

fn slices_of(events: &[Value], name: &str) -> Vec<Slice> {
    let track = of_phase(events, "M")
        .find(|event| event["name"] == "thread_name" && event["args"]["name"] == name)
        .unwrap_or_else(|| panic!("no track for {name}"))["tid"]
        .as_u64()
        .unwrap();
    let mut slices: Vec<_> = of_phase(events, "X").map(Slice::of).collect();
    slices.retain(|slice| slice.track == track);
    slices.sort_by(|a, b| a.begun.total_cmp(&b.begun));
    slices
}

fn named(name: &str) -> Stream {
    Stream::named(CPU, name).unwrap()
}

#[test]
fn every_operation_is_there_once_with_its_times() {
    alone(AS_IT_IS, || {
        let file = File::new("once");
        let trace = trace(&file.0).unwrap();
        let streams: Vec<_> = (0..3).map(|at| named(&format!("stream {at}"))).collect();
        let ran = Arc::new(Mutex::new(BTreeMap::<usize, u64>::new()));
        for round in 0..200 {
            for (at, stream) in streams.iter().enumerate() {
                let ran = ran.clone();
                let work = move || *ran.lock().entry(at).or_default() += 1;
                match round % 3 {
                    0 => stream.submit(work).unwrap(),
                    1 => stream.submit_host(work).unwrap(),
                    _ => drop(stream.call(work).unwrap()),
                }
            }
        }
        for stream in &streams {
            stream.synchronize().unwrap();
        }
        trace.stop().unwrap();
        let events = file.read();
        for at in 0..3 {
            let slices = work_of(&events, &format!("stream {at}"));
            assert_eq!(ran.lock()[&at], 200);
            let numbers: Vec<_> = slices.iter().map(Slice::n).collect();
            assert_eq!(numbers, (1..=200).collect::<Vec<_>>());
            for slice in &slices {
                let submitted = slice.args["submitted"].as_f64().unwrap();
                let waited = slice.args["waited"].as_f64().unwrap();
                assert!(submitted <= slice.begun && slice.begun <= slice.ended);
                assert!((slice.begun - submitted - waited).abs() < 0.01);
                assert!(slice.name.contains("every_operation"), "{}", slice.name);
                let site = slice.args["site"].as_str().unwrap();
                assert!(site.contains("trace.rs:"), "{site}");
                let host = slice.args["worker"] == "clika-host";
                assert_eq!(slice.category, if host { "host" } else { "native" });
            }
            // One after the other.
            for pair in slices.windows(2) {
                assert!(pair[0].ended <= pair[1].begun + 0.0015);
            }
        }
    });
}

#[test]
fn waits_are_arrows_from_what_was_waited_for_to_what_ran_next() {
    alone(AS_IT_IS, || {
        let file = File::new("arrows");
        let trace = trace(&file.0).unwrap();
        let (source, target) = (named("source"), named("target"));
        for _ in 0..20 {
            let long = || _ = std::hint::black_box((0..100_000_u64).sum::<u64>());
            source.submit(long).unwrap();
            source.submit(|| ()).unwrap();
            target.wait_stream(&source).unwrap();
            target.submit(|| ()).unwrap();
            // So that each wait is for operations that the trace has.
            target.synchronize().unwrap();
        }
        trace.stop().unwrap();
        let events = file.read();
        let (from, to) = (work_of(&events, "source"), work_of(&events, "target"));
        let ends: BTreeMap<u64, &Value> = of_phase(&events, "f")
            .map(|event| (event["id"].as_u64().unwrap(), event))
            .collect();
        let mut arrows = 0;
        for start in of_phase(&events, "s") {
            let end = ends[&start["id"].as_u64().unwrap()];
            let (begun, ended) = (start["ts"].as_f64().unwrap(), end["ts"].as_f64().unwrap());
            let source = from.iter().rfind(|slice| slice.is_at(begun)).unwrap();
            let target = to.iter().find(|slice| slice.is_at(ended)).unwrap();
            assert!(source.ended <= target.begun + 0.0015);
            // Each arrow leads from the second operation of its round.
            assert_eq!(source.n() % 2, 0);
            arrows += 1;
        }
        // A wait for what has been reached already is none.
        assert!((1..=20).contains(&arrows), "{arrows}");
        assert_eq!(ends.len(), arrows);
    });
}

#[test]
fn failures_and_what_they_skip_are_marked() {
    alone(AS_IT_IS, || {
        let file = File::new("failures");
        let trace = trace(&file.0).unwrap();
        let stream = named("failing");
        stream.submit(|| ()).unwrap();
        let fail = || Err::<(), _>(std::io::Error::other("no \"quotes\"\n"));
        stream.submit(fail).unwrap();
        stream.submit(|| ()).unwrap();
        assert!(stream.synchronize().is_err());
        stream.submit(|| ()).unwrap();
        stream.synchronize().unwrap();
        trace.stop().unwrap();
        let slices = work_of(&file.read(), "failing");
        let told: Vec<_> = slices
            .iter()
            .map(|slice| slice.args["failure"].as_str())
            .collect();
        assert!(told[0].is_none() && told[3].is_none());
        assert!(told[1].unwrap().contains("no \"quotes\"\n") && told[1] == told[2]);
        let skipped: Vec<_> = slices
            .iter()
            .map(|slice| slice.args["skipped"] == true)
            .collect();
        assert_eq!(skipped, [false, false, true, false]);
    });
}

#[test]
fn what_a_default_stream_skips_has_its_name_and_what_is_withdrawn_no_slice() {
    alone(AS_IT_IS, || {
        let file = File::new("default");
        let trace = trace(&file.0).unwrap();
        let stream = Stream::default_stream(CPU).unwrap();
        drop(foreign::strand(&stream).visit().unwrap().unwrap());
        let failed = stream.call(|| panic!("planned")).unwrap();
        assert!(stream.submit(|| ()).is_err());
        assert!(failed.wait().is_err());
        trace.stop().unwrap();
        let slices = work_of(&file.read(), "default");
        assert_eq!(slices.iter().map(Slice::n).collect::<Vec<_>>(), [2, 3]);
        for (slice, skipped) in slices.iter().zip([false, true]) {
            assert!(slice.name.contains("what_a_default_stream_skips"));
            assert!(slice.args["site"].as_str().unwrap().contains("trace.rs:"));
            assert!(slice.args["failure"].as_str().unwrap().contains("planned"));
            assert_eq!(slice.args["skipped"] == true, skipped);
        }
    });
}

#[test]
fn transfers_tell_their_bytes_and_the_counters_what_memory_is_held() {
    alone(AS_IT_IS, || {
        let file = File::new("bytes");
        let trace = trace(&file.0).unwrap();
        let (stream, buffer) = (named("bytes"), Buffer::new(CPU, 1 << 20).unwrap());
        stream.fill(&buffer, 0..1 << 20, 1_u8).unwrap();
        stream
            .run(buffer.update::<u8>(), |bytes| bytes.sort())
            .unwrap();
        assert_eq!(buffer.to_vec::<u8>().unwrap()[0], 1);
        stream.synchronize().unwrap();
        trace.stop().unwrap();
        let events = file.read();
        let slices = work_of(&events, "bytes");
        let kinds: Vec<_> = slices.iter().map(|slice| &*slice.category).collect();
        assert_eq!(kinds, ["fill", "native"]);
        assert!(slices.iter().all(|slice| slice.args["bytes"] == 1 << 20));
        let copies = work_of(&events, "default");
        assert_eq!((copies.len(), &*copies[0].category), (1, "copy"));
        let here = std::thread::current();
        assert_eq!(copies[0].args["worker"], here.name().unwrap());
        let memory = of_phase(&events, "C").filter(|event| event["name"] == "memory");
        assert!(memory.count() > 0);
    });
}

#[test]
fn a_full_log_is_emptied_by_who_fills_it() {
    alone(AS_IT_IS, || {
        let file = File::new("full");
        let trace = trace(&file.0).unwrap();
        let stream = named("many");
        for _ in 0..100_000 {
            stream.submit(|| ()).unwrap();
        }
        stream.synchronize().unwrap();
        trace.stop().unwrap();
        let slices = work_of(&file.read(), "many");
        let numbers: Vec<_> = slices.iter().map(Slice::n).collect();
        assert_eq!(numbers, (1..=100_000).collect::<Vec<_>>());
    });
}

#[test]
fn there_is_one_trace_at_a_time_and_another_after_it() {
    alone(AS_IT_IS, || {
        let (first, second) = (File::new("first"), File::new("second"));
        let stream = named("both");
        let trace_of = |file: &File| trace(&file.0);
        let running = trace_of(&first).unwrap();
        stream.submit(|| ()).unwrap();
        stream.synchronize().unwrap();
        let refused = trace_of(&second).unwrap_err();
        assert!(refused.is_invalid_argument() && !second.0.exists());
        drop(running);
        // What ends between the two is in neither.
        stream.submit(|| ()).unwrap();
        stream.synchronize().unwrap();
        let running = trace_of(&second).unwrap();
        stream.submit(|| ()).unwrap();
        stream.synchronize().unwrap();
        running.stop().unwrap();
        let numbers = |file: &File| -> Vec<u64> {
            work_of(&file.read(), "both").iter().map(Slice::n).collect()
        };
        assert_eq!((numbers(&first), numbers(&second)), (vec![1], vec![3]));
    });
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    alone(AS_IT_IS, || {
        let error = trace("/no/such/folder/trace.json").unwrap_err();
        assert!(error.is_invalid_argument());
        assert!(error.to_string().contains("/no/such/folder/trace.json"));
        let file = File::new("after");
        trace(&file.0).unwrap().stop().unwrap();
        assert!(!file.read().is_empty());
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_at_the_end() {
    alone(AS_IT_IS, || {
        let trace = trace("/dev/full").unwrap();
        let stream = named("lost");
        stream.submit(|| ()).unwrap();
        stream.synchronize().unwrap();
        let error = trace.stop().unwrap_err();
        assert!(
            error.is_device() && error.to_string().contains("/dev/full"),
            "{error}"
        );
        stream.submit(|| ()).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn the_environment_begins_one_that_a_process_without_a_shutdown_ends_too() {
    let _watchdog = watch();
    let file = File::new("environment");
    let left = alone(&[("CLIKA_TRACE", file.0.as_os_str())], || {
        let stream = named("traced");
        stream.submit(|| ()).unwrap();
        stream.synchronize().unwrap();
    });
    if left.is_some() {
        assert_eq!(work_of(&file.read(), "traced").len(), 1);
    }
}

#[test]
fn a_bad_path_in_the_environment_is_an_error_that_names_it() {
    for path in ["", "/no/such/folder/trace.json"] {
        alone(&[("CLIKA_TRACE", path)], || {
            for _ in 0..2 {
                let error = Stream::create(CPU).unwrap_err();
                assert!(error.is_invalid_argument());
                assert!(error.to_string().contains("CLIKA_TRACE"), "{error}");
            }
        });
    }
}

#[test]
fn a_process_that_finds_the_file_taken_writes_one_beside_it() {
    let _watchdog = watch();
    let file = File::new("taken");
    let taken = std::fs::File::create(&file.0).unwrap();
    taken.lock().unwrap();
    let left = alone(&[("CLIKA_TRACE", file.0.as_os_str())], || {
        let stream = named("second");
        stream.submit(|| ()).unwrap();
        stream.synchronize().unwrap();
        assert!(clika_runtime::shutdown(std::time::Duration::from_secs(5)));
        let path = std::env::var("CLIKA_TRACE").unwrap();
        let own = path.replace(".json", &format!(".{}.json", std::process::id()));
        assert_eq!(work_of(&read(Path::new(&own)), "second").len(), 1);
        std::fs::remove_file(own).unwrap();
        assert!(trace(path).unwrap_err().is_invalid_argument());
    });
    if left.is_some() {
        assert_eq!(std::fs::read_to_string(&file.0).unwrap(), "");
    }
}

#[cfg(unix)]
#[test]
fn a_forked_child_writes_a_file_of_its_own() {
    let _watchdog = watch();
    let file = File::new("fork");
    let left = alone(&[("CLIKA_TRACE", file.0.as_os_str())], || {
        let stream = named("parent");
        stream.submit(|| ()).unwrap();
        stream.synchronize().unwrap();
        child::in_child(|| {
            let stream = named("child");
            stream.submit(|| ()).unwrap();
            stream.synchronize().unwrap();
            assert!(clika_runtime::shutdown(std::time::Duration::from_secs(5)));
            let path = std::env::var("CLIKA_TRACE").unwrap();
            let own = path.replace(".json", &format!(".{}.json", std::process::id()));
            assert_eq!(work_of(&read(Path::new(&own)), "child").len(), 1);
            std::fs::remove_file(own).unwrap();
        });
        stream.submit(|| ()).unwrap();
        stream.synchronize().unwrap();
    });
    if left.is_some() {
        assert_eq!(work_of(&file.read(), "parent").len(), 2);
    }
}

#[cfg(unix)]
#[test]
fn a_process_that_dies_leaves_whole_lines() {
    alone(AS_IT_IS, || {
        let file = File::new("death");
        let path = file.0.clone();
        child::answer_of_child(move || {
            let _trace = trace(&path).unwrap();
            let stream = named("dying");
            stream.submit(|| ()).unwrap();
            stream.synchronize().unwrap();
            // The file is written as it goes.
            while !std::fs::read_to_string(&path).unwrap().contains("native") {
                std::thread::yield_now();
            }
            libc_exit()
        });
        let text = std::fs::read_to_string(&file.0).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("["));
        for line in lines {
            let event: Value = serde_json::from_str(line.strip_suffix(',').unwrap()).unwrap();
            assert!(event["ph"].is_string());
        }
    });
}

/// Ends the process at once.
#[cfg(unix)]
#[expect(unsafe_code, reason = "the standard library ends no process at once")]
fn libc_exit() -> bool {
    // SAFETY: nothing of this process goes on.
    unsafe { libc::_exit(0) }
}
