//! What came of the experiments, as a page.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::{
    arm::{Arm, Spread},
    claims, figures,
    parts::Part,
    plot::short,
    results::{Group, Measured, Results},
};

/// What is to be known before the numbers of a part are looked at.
fn about(part: Part) -> &'static str {
    match part {
        Part::Fig7 => {
            "Two virtual nodes on one machine, joined by links of the paper's rate, and by links without limit. `MPICH over \
             tcp` is the same library with libfabric's tcp provider on links of the same kind. Below a few KiB the time is \
             that of processes that wake each other on two cores, with no wire between them."
        }
        Part::Fig8 => {
            "Two jobs of which one runs at a time. (a) memory holds both, (b) it does not: there coswitch takes the \
             sequential order by itself, whatever was asked for, as the paper advises."
        }
        Part::Fig9 => "Three fit on a node's memory limit; a fourth, fifth and sixth go to swap.",
        Part::Fig10a => {
            "CG, class A, on links of 100 Mbit/s. Our processors are faster than the paper's by far more than these links \
             are, so that one job already waits for the network most of its time."
        }
        Part::Fig10b => {
            "`heat`, which exchanges large messages after each sweep over its memory, on links of 250 Mbit/s, where a job \
             alone computes half of its time and a little more: at the paper's 100 it would, on our processors, mostly \
             communicate, which BT did not. Jobs and slots are twice as long as in Fig. 9: with those of seconds, switches \
             exposed an eighth of the makespan, of the paper's a few hundredths. A job alone is done within a slot, so that \
             gang out of core pays for no switch, where the paper's paid 7 %: hybrid is compared with the better gang. How \
             much better it is depends on how much a job waits: once each, in core, hybrid was 0.76 of batch here, 0.83 at \
             300 Mbit/s (43 % waiting) and 0.86 at 400 (33 %). Until November 2026 the link let 4 ms of each message \
             pass at once, which its token bucket had saved while the job computed, as no real link does: a job alone was \
             too fast, and hybrid 0.82 to 0.88 of gang."
        }
        Part::Fig11 => {
            "Two jobs run at a time on links of 100 Mbit/s: hybrid takes two alike, paired one that computes (EP) and one \
             that communicates (CG), as measured while they run; until all have been measured, in its first turns, it \
             takes them as they come. Memory as declared holds four of the eight."
        }
        Part::Waiting => {
            "Three co-scheduled jobs that compute and communicate on the same cores, by how their ranks wait. Stock MPICH \
             polls without pause, over libfabric's tcp."
        }
    }
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{value:.decimals$}"))
}

fn spread(of: Option<Spread>) -> Option<String> {
    of.map(|of| format!("{} ({} – {})", short(of.median), short(of.min), short(of.max)))
}

fn row(text: &mut String, group: &Group, arm: &Arm, limit_s: f64) {
    let runs = arm.done + arm.timed_out + arm.failed;
    let makespan = spread(arm.makespan).unwrap_or_else(|| match () {
        () if arm.is_too_slow() => format!("> {limit_s:.0}"),
        () if arm.is_killed() => "jobs killed at the limit of memory".into(),
        () => "none done".into(),
    });
    let _ = writeln!(
        text,
        "| {} | {} | {} of {runs} | {makespan} | {} | {} | {} | {} | {} | {} | {} |",
        group.name,
        arm.name(),
        arm.done,
        number(arm.relative_makespan, 2),
        number(arm.spread, 2),
        number(arm.tradeoff, 2),
        number(arm.exposed_s, 1),
        arm.waiting.map_or_else(|| "–".into(), |share| format!("{:.0} %", share * 100.0)),
        number(arm.faults_a_minute(), 0),
        number(arm.swapped.map(|bytes| bytes / 1_048_576.0), 0),
    );
}

fn section(text: &mut String, part: Part, measured: &Measured) {
    let _ = writeln!(text, "\n## {}\n\n{}\n", part.title(), about(part));
    for (name, _) in figures::of(part, measured) {
        let _ = writeln!(text, "![{}](paper/{name})\n", part.title());
    }
    let _ = writeln!(text, "| claim | here | is to be | | because |\n| --- | --- | --- | --- | --- |");
    for claim in claims::of(part, measured) {
        let _ = writeln!(text, "{claim}");
    }
    let failed = |group: &Group| group.problem.as_ref().map(|why| format!("{}: {why}", group.name));
    for problem in measured.groups.iter().filter_map(failed).chain(measured.problem.clone()) {
        let _ = writeln!(text, "\nNot measured: {}.", problem.replace('\n', " "));
    }
    if !measured.groups.is_empty() {
        text.push_str(
            "\n| jobs | policy | done | makespan, s | slowdown | spread | metric | exposed, s | waiting | major faults a minute | swapped, MiB |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for group in &measured.groups {
            group.arms.iter().for_each(|arm| row(text, group, arm, measured.limit_s));
        }
    }
    curves(text, part, measured);
    let Measured { took_s, load, repeat, .. } = measured;
    let _ =
        writeln!(text, "\nUp to {repeat} repetitions, {took_s:.0} s in all; load average {load:.1} before.");
}

fn curves(text: &mut String, part: Part, measured: &Measured) {
    let Some(first) = measured.curves.first() else { return };
    let heads: Vec<String> = match part {
        Part::Fig7 => first.points.iter().map(|(bytes, _)| format!("{bytes} B, µs")).collect(),
        _ => first.points.iter().map(|(n, _)| format!("n = {n}, s")).collect(),
    };
    let _ = writeln!(text, "\n| | {} |\n|{}", heads.join(" | "), " --- |".repeat(heads.len() + 1));
    for curve in &measured.curves {
        let cells =
            curve.points.iter().map(|(_, values)| spread(Spread::of(values)).unwrap_or_else(|| "–".into()));
        let _ = writeln!(text, "| {} | {} |", curve.name, cells.collect::<Vec<_>>().join(" | "));
    }
}

/// The page of all of them.
pub(super) fn page(results: &Results) -> String {
    let mut text = String::from(
        "# The paper's experiments, here\n\n\
         Written by `cargo xtask paper`: A. Bouteiller et al., *Hybrid Preemptive Scheduling of MPI Applications on \
         Grids*, §5, with the programs of `examples/mpi`, the files of `examples/paper`, two virtual nodes of one core and \
         a memory limit each, and real swap. Everything is scaled to two cores and minutes: the paper had 32 nodes, jobs of \
         many minutes and slots of 900 s, so that shapes and ratios can be compared, and seconds cannot. Jobs take turns of \
         seconds here, and a switch costs tenths of one: its share is larger than in the paper.\n\n\
         Policies run in turns with each other; numbers are medians, in brackets from where to where. A run over the limit was \
         ended, counts as slower than all others (a ratio with it is *without end*), and was not repeated. *Slowdown* is the makespan by the sum of the times \
         alone (the paper's Table 2); *spread* is the standard deviation of the turnarounds by their mean, and *metric* the \
         sum of both, the paper's trade-off metric; *exposed* is the time in which no job ran because of a switch; *waiting* \
         is the share of their running time that ranks waited for messages. Faults and swap are those of the whole machine. \
         Lines and points of the paper in the pictures are numbers that it gives in words or tables; its pictures have more.\n",
    );
    for part in Part::value_variants() {
        match results.parts.get(part) {
            Some(measured) => section(&mut text, *part, measured),
            None => {
                let _ = writeln!(
                    text,
                    "\n## {}\n\nNot measured yet: `cargo xtask paper --resume`.",
                    part.title()
                );
            }
        }
    }
    if figures::fairness(results).is_some() {
        text.push_str(
            "\n## Fairness\n\nThe second term of the paper's metric is the standard deviation of the turnarounds by their mean. Where \
             jobs are unequal it measures the mix, not unfairness; under batch it is large because the last job waits for all \
             others. The tables above have both terms apart.\n\n![The trade-off metric of all policies](paper/fairness.svg)\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_failed_is_told_and_one_that_was_not_run_is_too() {
        let mut results = Results::default();
        let problem = Some("no criu".to_owned());
        let group = Group { name: "four of each".into(), arms: Vec::new(), problem };
        results.parts.insert(Part::Fig11, Measured { groups: vec![group], ..Measured::default() });
        let page = page(&results);
        assert!(page.contains("Not measured: four of each: no criu.") && page.contains("**not measured**"));
        assert_eq!(page.matches("Not measured yet").count(), 6);
    }
}
