//! Benchmark of a launch: an empty program on 4 ranks of one node, from order to end, against mpiexec.

use std::time::Instant;

use anyhow::Result;
use coswitch_daemon::protocol::Wait;
use coswitch_examples::Program;
use coswitch_policies::Bytes;

use crate::{
    figure::{Bound, Figure},
    mpiexec,
    pairs::{Pairs, take_turns},
    programs,
    stage::{Stage, apart},
};

const RANKS: u32 = 4;

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let program = programs::example(Program::Null)?;
    apart(|| {
        let stage = Stage::set(1, Bytes::mib(1024), None)?;
        let ours = || {
            let began = Instant::now();
            let mut job = stage.launch(&[&program], &[0; RANKS as usize], Wait::default());
            stage.end_of(&mut job)?;
            Ok(began.elapsed().as_secs_f64())
        };
        let theirs = || Ok(mpiexec::run(RANKS, &[&program])?.1.as_secs_f64());
        let (ours, theirs) = take_turns(rounds, ours, theirs)?.into_iter().unzip();
        stage.strike()?;
        let pairs = Pairs::new(ours, theirs);
        let name = format!("a program that does nothing on {RANKS} ranks, by mpiexec");
        Ok(vec![
            Figure::bounded(name, pairs.ratio(), "x", Bound::AtMost(1.0))
                .of(pairs.detail("coswitch", "mpiexec", 1e3, "ms")),
        ])
    })
}
