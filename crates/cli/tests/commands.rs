//! The binary as users meet it: what it prints where, and its exit status.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TRACE: &str = r#"[
{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"photos.py"}},
{"ph":"X","pid":1,"tid":1,"ts":1.5,"dur":2.25,"name":"denoise","cat":"native","args":{"n":1}}
]
"#;

/// What one run left behind.
struct Ran {
    status: i32,
    stdout: String,
    stderr: String,
}

fn clikart(arguments: &[&str]) -> Ran {
    clikart_reading(arguments, "")
}

fn clikart_reading(arguments: &[&str], stdin: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_clikart"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("clikart was built beside this test");
    // A command that reads nothing may be over before all is written.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        status: output.status.code().expect("no signal ends it"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A fresh folder with the trace in it, for one test.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("trace.json"), TRACE).unwrap();
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// One line, which begins with the name of the program.
fn is_one_line(message: &str) -> bool {
    message.starts_with("clikart: ") && message.trim_end().lines().count() == 1
}

#[test]
fn a_trace_becomes_a_page_beside_it() {
    let folder = folder("beside");
    let ran = clikart(&["timeline", text(&folder.join("trace.json"))]);
    assert_eq!((ran.status, &*ran.stdout), (0, ""));
    assert!(is_one_line(&ran.stderr), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("1 operation on 1 stream"),
        "{}",
        ran.stderr
    );
    let page = fs::read_to_string(folder.join("trace.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("\"denoise\""));
}

#[test]
fn the_page_goes_where_the_user_says() {
    let folder = folder("output");
    let trace = folder.join("trace.json");
    let target = folder.join("other.html");
    let ran = clikart(&["timeline", text(&trace), "-o", text(&target)]);
    assert_eq!((ran.status, &*ran.stdout), (0, ""));
    let written = fs::read_to_string(target).unwrap();

    let printed = clikart(&["timeline", text(&trace), "--output", "-"]);
    assert_eq!((printed.status, &*printed.stderr), (0, ""));
    assert_eq!(printed.stdout, written);

    let piped = clikart_reading(&["timeline", "-"], TRACE);
    assert_eq!((piped.status, &*piped.stderr), (0, ""));
    assert_eq!(piped.stdout, written);
}

#[test]
fn a_trace_that_was_cut_off_is_shown_and_told() {
    let open = TRACE.trim_end().trim_end_matches(']');
    for cut_off in [open.to_owned(), format!("{open},{{\"ph\":\"X\",\"ts\":1")] {
        let ran = clikart_reading(&["timeline", "-"], &cut_off);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(is_one_line(&ran.stderr) && ran.stderr.contains("was cut off"));
        assert!(ran.stdout.contains("\"cutOff\":true"));
    }
}

#[test]
fn events_that_are_left_out_are_told() {
    let odd = TRACE.replacen('[', "[{\"ph\":\"X\"},", 1);
    let ran = clikart_reading(&["timeline", "-"], &odd);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("1 event that could not be understood and is left out")
    );
}

#[test]
fn what_cannot_be_done_is_one_line_that_says_what_to_do() {
    let folder = folder("failures");
    let trace = folder.join("trace.json");
    let file = |name: &str, content: &str| {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        text(&path).to_owned()
    };
    let nowhere = text(&folder.join("no/such/place.html")).to_owned();
    let missing = text(&folder.join("missing.json")).to_owned();
    let cases: [(&[&str], &str); 9] = [
        (&[&missing], "check its name"),
        (&[text(&folder)], "cannot be read"),
        (&[&file("empty.json", "")], "it is empty"),
        (
            &[&file("broken.json", "[\n{},\n{\"a\" 1}]")],
            "line 3 is not JSON",
        ),
        (&[&file("other.json", "{\"a\": 1}")], "traceEvents"),
        (&[&file("idle.json", "[]")], "has no operations"),
        (&[&file("page.html", TRACE)], "would replace the trace"),
        (
            &[text(&trace), "-o", text(&trace)],
            "would replace the trace",
        ),
        (&[text(&trace), "-o", &nowhere], "cannot be written"),
    ];
    for (arguments, wanted) in cases {
        let ran = clikart(&[&["timeline"], arguments].concat());
        assert_eq!((ran.status, &*ran.stdout), (1, ""), "{arguments:?}");
        assert!(is_one_line(&ran.stderr), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(wanted), "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(fs::read_to_string(&trace).unwrap(), TRACE);
}

#[test]
fn devices_are_listed_as_a_table() {
    let ran = clikart(&["devices"]);
    assert_eq!((ran.status, &*ran.stderr), (0, ""));
    for word in ["device", "memory", "cpu:0", "GiB", "float32"] {
        assert!(ran.stdout.contains(word), "{word}:\n{}", ran.stdout);
    }
}

#[test]
fn devices_are_listed_as_json() {
    let ran = clikart(&["devices", "--json"]);
    assert_eq!((ran.status, &*ran.stderr), (0, ""));
    let devices: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let listed = clika_runtime::devices();
    assert_eq!(devices.as_array().unwrap().len(), listed.len());
    assert_eq!(devices[0]["device"], "cpu:0");
    assert_eq!(devices[0]["compute_units"], listed[0].compute_units());
    assert!(devices[0]["driver_version"].is_null());
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = clikart(&["completions", shell]);
        assert_eq!((ran.status, &*ran.stderr), (0, ""), "{shell}");
        for word in ["timeline", "devices", "output"] {
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn wrong_usage_says_what_was_meant() {
    let cases: [(&[&str], &str); 5] = [
        (&["timline"], "'timeline'"),
        (&["devices", "--jsno"], "'--json'"),
        (&["timeline", "a", "--ouput", "b"], "'--output'"),
        (&["completions", "bsh"], "'bash'"),
        (&["timeline"], "<TRACE>"),
    ];
    for (arguments, wanted) in cases {
        let ran = clikart(arguments);
        assert_eq!((ran.status, &*ran.stdout), (2, ""), "{arguments:?}");
        assert!(ran.stderr.contains(wanted), "{arguments:?}: {}", ran.stderr);
    }
    let nothing = clikart(&[]);
    assert_eq!((nothing.status, &*nothing.stdout), (2, ""));
    assert!(nothing.stderr.contains("Usage:"), "{}", nothing.stderr);
}

#[test]
fn help_and_version_go_to_standard_output() {
    let help = clikart(&["--help"]);
    assert_eq!((help.status, &*help.stderr), (0, ""));
    assert!(help.stdout.contains("Exit status:") && help.stdout.contains("timeline"));
    let version = clikart(&["--version"]);
    assert_eq!(
        version.stdout,
        format!("clikart {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let big = TRACE.replace("denoise", &"x".repeat(1 << 20));
    let folder = folder("early");
    fs::write(folder.join("trace.json"), big).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_clikart"))
        .args(["timeline", text(&folder.join("trace.json")), "-o", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_bench_is_saved_and_compared() {
    let folder = folder("bench");
    let saved = text(&folder.join("saved.json")).to_owned();
    let ran = clikart(&["bench", "--quick", "--only", "handover", "--json", &saved]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    for word in ["budget", "≤ 0.15", "hand-over of two streams"] {
        assert!(ran.stdout.contains(word), "{word}:\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains("change") && !ran.stdout.contains("overlap"));
    let figures: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&saved).unwrap()).unwrap();
    assert!(figures["figures"]["handover"]["ahead_us"].as_f64().unwrap() > 0.0);

    let again = clikart(&[
        "bench",
        "--only=handover,copy",
        "--quick",
        "--compare",
        &saved,
    ]);
    assert_eq!(again.status, 0, "{}", again.stderr);
    assert!(again.stdout.contains("change") && again.stdout.contains("GB/s"));
}

#[test]
fn a_bench_that_cannot_be_compared_or_saved_says_so() {
    let folder = folder("bench_failures");
    let trace = text(&folder.join("trace.json")).to_owned();
    let missing = text(&folder.join("missing.json")).to_owned();
    let nowhere = text(&folder.join("no/such/place.json")).to_owned();
    for (option, file, wanted) in [
        ("--compare", &trace, "no saved run"),
        ("--compare", &missing, "cannot be read"),
        ("--json", &nowhere, "cannot be written"),
    ] {
        let ran = clikart(&["bench", "--quick", "--only", "handover", option, file]);
        let last = ran.stderr.lines().last().unwrap_or_default();
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(is_one_line(last) && last.contains(wanted), "{}", ran.stderr);
    }
    let typo = clikart(&["bench", "--only", "hanover"]);
    assert_eq!(typo.status, 2);
    assert!(typo.stderr.contains("'handover'"), "{}", typo.stderr);
}
