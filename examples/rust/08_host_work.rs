//! Work that blocks goes to threads of its own, so it never holds up work that computes.

use std::error::Error;
use std::sync::mpsc;

use clika_runtime::{Device, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let cpu = Device::cpu();
    let (send, receive) = mpsc::channel::<u32>();

    // Sixty functions that block, each until the program answers it: more than there are cores.
    let mut answers = Vec::new();
    let mut blocked = Vec::new();
    for _ in 0..60 {
        let (answer, question) = mpsc::channel::<u32>();
        let stream = Stream::create(cpu)?;
        let sum = send.clone();
        stream.submit_host(move || sum.send(question.recv().unwrap_or(0)))?;
        answers.push(answer);
        blocked.push(stream);
    }

    // Meanwhile another stream computes.
    let computing = Stream::create(cpu)?;
    let total: u64 = computing.call(|| (1..=1000).sum())?.wait()?;
    println!("computed {total} while {} functions wait", blocked.len());
    assert_eq!(total, 500_500);
    assert!(blocked.iter().all(|stream| !stream.query_idle()));

    // And then they all end.
    for (n, answer) in (1..).zip(&answers) {
        answer.send(n)?;
    }
    for stream in &blocked {
        stream.synchronize()?;
    }
    drop(send);
    let sum: u32 = receive.iter().sum();
    println!("the answers add up to {sum}");
    assert_eq!(sum, 1830);
    Ok(())
}
