//! What an event is in instructions, counted by valgrind: no wait for memory and no neighbour on the machine is in it.

use std::{env, path::Path, thread};

use anyhow::{Context, Result};

use super::{
    curve,
    program::{bounded, done},
    turns::{MANY_ROWS, Size},
};
use crate::figure::{Bound, Figure};

/// Seconds; all of them take some 120 on two cores.
const COUNT_MAX: u32 = 1800;

/// The sizes beside each other, for each is a process of its own.
pub(super) fn measure() -> Result<Figure> {
    let counted: Vec<Result<f64>> = thread::scope(|scope| {
        let counting = MANY_ROWS.map(|size| scope.spawn(move || instructions(size)));
        counting.map(|size| size.join().expect("whoever counts does not panic")).into()
    });
    let nodes = MANY_ROWS.iter().map(|size| size.nodes);
    let points = nodes.zip(counted).map(|(nodes, count)| Ok((nodes, count?))).collect::<Result<Vec<_>>>()?;
    let told: Vec<String> = points.iter().map(|(nodes, count)| format!("{nodes}: {count:.0}")).collect();
    let name =
        "growth of the instructions of an event, hybrid, 16 rows, with the nodes, by that of the logarithm";
    Ok(Figure::bounded(name, curve::growth(&points), "x", Bound::AtMost(1.0)).of(told.join(", ")))
}

/// Of an event.
fn instructions(size: Size) -> Result<f64> {
    let own = env::current_exe().context("failed to find this program")?;
    let mut valgrind = bounded(COUNT_MAX, Path::new("valgrind"));
    valgrind.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    valgrind.arg(own).args(["sim", "--only", &size.to_string()]);
    let output = done(valgrind.output()?, COUNT_MAX).context("valgrind did not count: is it installed?")?;
    let (events, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let events: f64 = events.trim().parse().context("no number of events was told")?;
    let refs =
        told.lines().find_map(|line| line.split_once("I   refs:")).context("no instructions were told")?;
    let refs: f64 = refs.1.trim().replace(',', "").parse()?;
    Ok(refs / events)
}
