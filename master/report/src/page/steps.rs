//! The marks of the steps of switches: parts that were hidden because some job computed, and exposed parts.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{NodeId, SimTime, metrics::Span};
use serde::Serialize;

use crate::{
    history::{History, StepHistory},
    journal::SwitchStep,
    lives::within,
    words::{bytes, clock, seconds},
};

/// More parts of steps than this are summed by columns of time.
const STEPS_MAX: usize = 2500;

/// A hidden or an exposed part of a step.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct StepMark {
    pub(super) node: u32,
    lane: &'static str,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) hidden: bool,
    says: String,
}

/// `from 3.2 s for 0.5 s`.
fn when(span: Span) -> String {
    format!("from {:.2} s for {}", clock(span.from), seconds(span.length()))
}

/// The lane in which a step is drawn.
const fn lane(step: SwitchStep) -> &'static str {
    match step {
        SwitchStep::Freeze | SwitchStep::Flush => "flush",
        SwitchStep::Dump | SwitchStep::Release => "dump",
        SwitchStep::Seal => "seal",
        SwitchStep::Launch | SwitchStep::Restore | SwitchStep::Thaw => "restore",
    }
}

#[derive(Clone, Copy)]
struct Part<'a> {
    step: &'a StepHistory,
    span: Span,
    hidden: bool,
}

/// The marks of all steps, and whether they are summed by columns.
pub(super) fn step_marks(history: &History) -> (Vec<StepMark>, bool) {
    let computing = history.lives.computing();
    let split = history.steps.iter().flat_map(|step| split(step, &computing));
    let mut parts: Vec<Part<'_>> = split.filter(|part| part.span.from < part.span.to).collect();
    parts.sort_by_key(|part| (part.step.node, lane(part.step.step), part.hidden, part.span.from));
    if parts.len() > STEPS_MAX {
        return (columns(history, &parts), true);
    }
    (parts.iter().map(|part| step_mark(history, part)).collect(), false)
}

/// The hidden and the exposed parts of a step.
fn split<'a>(step: &'a StepHistory, computing: &[Span]) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut from = step.span.from;
    let mut push = |from, to, hidden| parts.push(Part { step, span: Span { from, to }, hidden });
    for covered in within(step.span, computing) {
        push(from, covered.from, false);
        push(covered.from, covered.to, true);
        from = covered.to;
    }
    push(from, step.span.to, false);
    parts
}

fn step_mark(history: &History, part: &Part<'_>) -> StepMark {
    let StepHistory { switch, job, node, step, bytes: moved, span } = *part.step;
    let moved = if moved.0 > 0 { format!(", {} moved", bytes(moved)) } else { String::new() };
    let of = if part.span == span { String::new() } else { format!(" of {}", seconds(span.length())) };
    let (what, when, fate) = (step.doing(), when(part.span), fate(part.hidden));
    let says = format!("{switch}: {what} {} on {node}, {when}{of}{moved}; {fate}", history.name(job));
    let (from, to) = (clock(part.span.from), clock(part.span.to));
    StepMark { node: node.0, lane: lane(step), from, to, hidden: part.hidden, says }
}

const fn fate(hidden: bool) -> &'static str {
    if hidden { "hidden: a job computed" } else { "exposed: no job computed" }
}

/// The marks of columns: for each stretch of time and each lane one mark as long as the exposed time, then
/// one as long as the hidden time. `parts` are in the order of nodes, lanes, hidden or not, and time.
fn columns(history: &History, parts: &[Part<'_>]) -> Vec<StepMark> {
    let count = (STEPS_MAX as u64 / (8 * u64::from(history.nodes.max(1)))).clamp(40, 300);
    let width = history.end.0.div_ceil(count).max(1);
    let mut took: BTreeMap<(NodeId, &str, u64, bool), u64> = BTreeMap::new();
    let alike = |a: &Part<'_>, b: &Part<'_>| {
        let key = |part: &Part<'_>| (part.step.node, lane(part.step.step), part.hidden);
        key(a) == key(b)
    };
    for group in parts.chunk_by(alike) {
        let (node, lane, hidden) = (group[0].step.node, lane(group[0].step.step), group[0].hidden);
        // Overlapping parts count once.
        let mut covered = 0;
        for Span { from, to } in group.iter().map(|part| part.span) {
            let mut from = from.0.max(covered);
            covered = covered.max(to.0);
            while from < to.0 {
                let end = (from / width * width + width).min(to.0);
                *took.entry((node, lane, from / width, hidden)).or_default() += end - from;
                from = end;
            }
        }
    }
    let mark = |(&(node, lane, column, hidden), &length): (&(NodeId, &'static str, u64, bool), &u64)| {
        let before = if hidden { took.get(&(node, lane, column, false)).copied().unwrap_or(0) } else { 0 };
        let from = column * width;
        let stretch = Span { from: SimTime(from), to: SimTime(from + width) };
        let took = seconds(Duration::from_nanos(length));
        StepMark {
            node: node.0,
            lane,
            from: clock(SimTime(from + before)),
            to: clock(SimTime(from + before + length)),
            hidden,
            says: format!("{lane} on {node}, {}: {took} {}", when(stretch), fate(hidden)),
        }
    };
    took.iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Bytes, JobId, SwitchId};

    use super::*;

    fn span(from: u64, to: u64) -> Span {
        let at = |seconds| Duration::from_secs(seconds).into();
        Span { from: at(from), to: at(to) }
    }

    fn step(step: SwitchStep, from: u64, to: u64) -> StepHistory {
        let (switch, job, node) = (SwitchId(1), JobId(0), NodeId(0));
        StepHistory { switch, job, node, step, span: span(from, to), bytes: Bytes::mib(3) }
    }

    #[test]
    fn a_step_is_split_where_computing_begins_and_ends() {
        let step = step(SwitchStep::Seal, 2, 12);
        let parts = split(&step, &[span(0, 3), span(5, 8)]);
        let parts: Vec<(Span, bool)> = parts
            .iter()
            .filter(|part| part.span.from < part.span.to)
            .map(|part| (part.span, part.hidden))
            .collect();
        let expected = [(span(2, 3), true), (span(3, 5), false), (span(5, 8), true), (span(8, 12), false)];
        assert_eq!(parts, expected);
    }

    #[test]
    fn a_mark_says_what_it_is_with_units() {
        let history = History::default();
        let step = step(SwitchStep::Dump, 2, 12);
        let part = Part { step: &step, span: span(2, 3), hidden: false };
        let expected = "switch-1: dumping job-0 on node-0, from 2.00 s for 1.0 s of 10.0 s, 3 MiB moved; \
                        exposed: no job computed";
        assert_eq!(step_mark(&history, &part).says, expected);
    }

    #[test]
    fn in_columns_overlapping_steps_count_once() {
        let history = History { nodes: 1, end: Duration::from_secs(300).into(), ..History::default() };
        let steps =
            [step(SwitchStep::Dump, 0, 1), step(SwitchStep::Dump, 0, 2), step(SwitchStep::Dump, 2, 3)];
        let hidden = [false, false, true];
        let parts: Vec<Part<'_>> = std::iter::zip(&steps, hidden)
            .map(|(step, hidden)| Part { step, span: step.span, hidden })
            .collect();
        let marks: Vec<(f64, f64, bool)> =
            columns(&history, &parts).iter().map(|mark| (mark.from, mark.to, mark.hidden)).collect();
        assert_eq!(marks, [(0.0, 1.0, false), (1.0, 2.0, false), (2.0, 3.0, true)]);
    }
}
