//! Computes Table 4.1 of Solsona's thesis beside the printed one, and compares all node schedulers. Writes
//! the tables of `docs/local-coscheduling.md`.
//!
//! `cargo run --release -p coswitch-sim --example table_4_1 -- [SEEDS [SERVED [THREADS]]]`

use std::io::Write;

use coswitch_sim::local::{
    Crowding, Peers, Shape,
    compare::compare,
    markdown::{comparison_as_markdown, table_as_markdown},
    table_4_1::{TableOptions, table_4_1},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |place: usize, default: u32| arguments.get(place).map_or(Ok(default), |text| text.parse::<u32>());
    let (seeds, served, threads) = (number(0, 5)?, number(1, 10_000)?, number(2, 2)?);
    let threads = usize::try_from(threads)?;
    let seeds: Vec<u64> = (1..=u64::from(seeds)).collect();
    let mut out = std::io::stdout().lock();
    // With the finer grain, IMP is overloaded at the highest load and its queues only grow: fewer tasks are
    // served there.
    let variants = [
        (Crowding::Share, Peers::Any, 0.5, served),
        (Crowding::TurnLocal, Peers::Any, 0.5, served),
        (Crowding::Share, Peers::Any, 0.2, served.div_ceil(5)),
        (Crowding::Share, Peers::Ring, 0.5, served.div_ceil(5)),
    ];
    for (crowding, peers, grain, served) in variants {
        let shape = Shape { crowding, peers, grain, served, ..Shape::default() };
        let table = table_4_1(&TableOptions { shape, seeds: seeds.clone(), threads })?;
        let runs = table.runs;
        writeln!(
            out,
            "{crowding:?}, peers {peers:?}, grain {grain}: {runs} runs of {served} distributed tasks\n"
        )?;
        writeln!(out, "{}", table_as_markdown(&table))?;
    }
    for grain in [0.5, 0.2] {
        let compared = compare(&Shape { grain, served, ..Shape::default() }, &seeds, threads)?;
        writeln!(out, "All schedulers, grain {grain}\n\n{}", comparison_as_markdown(&compared))?;
    }
    Ok(())
}
