//! Benchmark of encrypted links: latency of 1 byte and bandwidth of 1 MiB between two virtual nodes, with the
//! links encrypted as between machines, by the same links in the clear. The limit is what AES-256-GCM alone
//! does on a core: each byte is sealed once and opened once.

use std::{
    hint::black_box,
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use coswitch_daemon::plane::LinkRules;
use coswitch_examples::Program;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use crate::{
    figure::Figure,
    pairs::{Pairs, take_turns},
    pingpong::{MEMORY, Sample, ours, parse},
    programs,
    stage::{Stage, apart},
};

/// Bytes of a record of a link.
const RECORD: usize = 16 << 10;
const SEAL_FOR: Duration = Duration::from_millis(500);

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let program = programs::example(Program::Pingpong)?;
    let samples = apart(|| encrypted_and_clear(&program, rounds))?;
    let pairs = |of: fn(&Sample) -> f64| {
        let (encrypted, clear) = samples.iter().map(|(ours, theirs)| (of(ours), of(theirs))).unzip();
        Pairs::new(encrypted, clear)
    };
    let latency = pairs(|sample| sample.latency_us);
    let bandwidth = pairs(|sample| sample.megabytes_per_s);
    let detail = |pairs: &Pairs, scale, unit| pairs.detail("encrypted", "clear", scale, unit);
    Ok(vec![
        Figure::plain("latency of 1 B, two nodes, encrypted, by the same in the clear", latency.ratio(), "x")
            .of(detail(&latency, 1.0, "us")),
        Figure::plain(
            "bandwidth of 1 MiB, two nodes, encrypted, by the same in the clear",
            bandwidth.ratio(),
            "x",
        )
        .of(detail(&bandwidth, 1e-3, "GB/s")),
        Figure::plain("AES-256-GCM alone on one core, records of 16 KiB", sealed_per_second() / 1e9, "GB/s"),
    ])
}

/// Runs the program in turns over both kinds of links.
fn encrypted_and_clear(program: &str, rounds: u32) -> Result<Vec<(Sample, Sample)>> {
    // Each kind has a virtual network of its own, and a thread has only one.
    let (go, turns) = channel::<()>();
    let (clear_to, clear) = channel();
    thread::scope(|scope| {
        let stage_of_clear = scope.spawn(move || {
            let stage = Stage::set(2, MEMORY, None)?;
            for () in turns {
                clear_to.send(ours(&stage, &[program], &[0, 1], parse)).ok();
            }
            stage.strike()
        });
        let rules = LinkRules { encrypt: true, ..LinkRules::default() };
        let stage = Stage::with_links(2, MEMORY, None, rules)?;
        let in_the_clear = || {
            go.send(()).context("the nodes with links in the clear have ended")?;
            clear.recv().context("the nodes with links in the clear have ended")?
        };
        let samples = take_turns(rounds, || ours(&stage, &[program], &[0, 1], parse), in_the_clear)?;
        drop(go);
        stage.strike()?;
        stage_of_clear.join().map_err(|_| anyhow!("the nodes with links in the clear panicked"))??;
        Ok(samples)
    })
}

fn sealed_per_second() -> f64 {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).expect("a key's length"));
    let (mut record, mut count, began) = (vec![0; RECORD], 0u64, Instant::now());
    while began.elapsed() < SEAL_FOR {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&count.to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut record);
        black_box(tag.expect("it is short enough").as_ref());
        count += 1;
    }
    count as f64 * RECORD as f64 / began.elapsed().as_secs_f64()
}
