//! Every measure runs with every peer; what the figures say is for people to judge.

use std::process::Command;

#[test]
fn every_measure_runs_with_every_peer() {
    let queues = ["clika", "std", "crossbeam", "rayon", "tokio"];
    let measures = [
        "submit", "marker", "handover", "backlog", "streams", "overlap",
    ];
    let memory = [
        ("clika", &["buffers", "alloc", "copy"][..]),
        ("malloc", &["alloc"]),
        ("mimalloc", &["alloc"]),
        ("memcpy", &["copy"]),
    ];
    let queues = queues.map(|peer| (peer, &measures[..]));
    for (peer, measures) in queues.into_iter().chain(memory) {
        for measure in measures {
            let output = Command::new(env!("CARGO_BIN_EXE_clika-bench"))
                .args([peer, *measure, "--smoke"])
                .output()
                .expect("the bench was built beside this test");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.starts_with('{'),
                "{peer} {measure}: {output:?}"
            );
        }
    }
}

#[test]
fn unknown_names_print_the_usage() {
    for arguments in [
        &["nobody", "submit"][..],
        &["std", "nothing"],
        &["std"],
        &[],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_clika-bench"))
            .args(arguments)
            .output()
            .expect("the bench was built beside this test");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).starts_with("usage:"),
            "{arguments:?}"
        );
    }
}
