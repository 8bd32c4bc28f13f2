//! The comparison as text tables.

use std::io;

use comfy_table::{Cell, Table};
use coswitch_policies::Bytes;

use super::{ArmReport, Comparison, Medians};
use crate::table::{none, percent, right, table};

impl Comparison {
    /// Writes the comparison as tables.
    ///
    /// # Errors
    /// Where `out` cannot be written.
    pub fn write_tables(&self, out: &mut dyn io::Write) -> io::Result<()> {
        if let Some(partial) = &self.partial {
            writeln!(out, "PARTIAL: {partial}")?;
        }
        let times = if self.turns == 1 { "once" } else { &format!("{} times, in turns", self.turns) };
        writeln!(out, "{}: {} jobs under each policy, {times}; medians", self.name, self.jobs)?;
        writeln!(out, "{}\n", times_table(self))?;
        writeln!(out, "{}", costs_table(self))?;
        for arm in self.arms.iter().filter(|arm| arm.done < self.turns) {
            let ArmReport { arm, failed, timed_out, done, .. } = arm;
            writeln!(
                out,
                "{arm}: {done} runs done, {failed} with failed jobs, {timed_out} not done in time"
            )?;
        }
        self.left_out.iter().try_for_each(|left| writeln!(out, "left out: {left}"))
    }
}

fn number(value: Option<f64>, decimals: usize, unit: &str) -> Cell {
    right(value.map_or_else(none, |value| format!("{value:.decimals$}{unit}")))
}

fn header(table: &mut Table, titles: &[&str]) {
    table.set_header(std::iter::once(Cell::new("policy")).chain(titles.iter().map(right)));
}

fn times_table(comparison: &Comparison) -> Table {
    let mut table = table();
    header(
        &mut table,
        &["makespan", "from", "to", "by batch", "by best", "wait", "turnaround", "trade-off", "spread"],
    );
    for arm in &comparison.arms {
        let of = |what: fn(&Medians) -> Option<f64>| arm.medians.as_ref().and_then(what);
        table.add_row([
            Cell::new(arm.arm),
            number(arm.makespan.map(|makespan| makespan.median), 1, "s"),
            number(arm.makespan.map(|makespan| makespan.min), 1, "s"),
            number(arm.makespan.map(|makespan| makespan.max), 1, "s"),
            number(arm.by_batch, 2, ""),
            number(arm.by_best, 2, ""),
            number(of(|medians| Some(medians.wait_s)), 1, "s"),
            number(of(|medians| Some(medians.turnaround_s)), 1, "s"),
            number(of(|medians| medians.tradeoff), 2, ""),
            number(of(|medians| Some(medians.spread)), 2, ""),
        ]);
    }
    table
}

fn costs_table(comparison: &Comparison) -> Table {
    let mut table = table();
    header(&mut table, &["exposed", "moved", "waiting", "major faults", "swapped", "memory stall"]);
    for arm in &comparison.arms {
        let of = |what: fn(&Medians) -> Option<f64>| arm.medians.as_ref().and_then(what);
        let bytes = |what| right(of(what).map_or_else(none, |bytes| Bytes(bytes as u64).to_string()));
        table.add_row([
            Cell::new(arm.arm),
            number(of(|medians| Some(medians.exposed_s)), 1, "s"),
            bytes(|medians| Some(medians.moved)),
            right(of(|medians| Some(medians.waiting)).map_or_else(none, percent)),
            number(of(|medians| Some(medians.major_faults)), 0, ""),
            bytes(|medians| Some(medians.swapped)),
            number(of(|medians| medians.memory_stall_s), 1, "s"),
        ]);
    }
    table
}
