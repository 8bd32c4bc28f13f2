//! The page of results, `docs/paper-results.md`.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::{
    arm::{Arm, MedianRange, mean_and_deviation},
    claims,
    experiments::Experiment,
    pictures,
    plot::short,
    results::{Group, Measured, Results, SHAPE},
};

/// Introduction to the numbers of an experiment.
fn about(experiment: Experiment) -> &'static str {
    match experiment {
        Experiment::Fig7 => {
            "Two virtual nodes on one machine, joined by links of the paper's rate, and by links without \
             limit. `MPICH over tcp` is the same library with libfabric's tcp provider on links of the \
             same kind. Below a few KiB the time is that of processes that wake each other on two cores, \
             with no wire between them."
        }
        Experiment::Fig8 => {
            "Two jobs of which one runs at a time. (a) Memory holds both; prefetch begins as early as the \
             greedy oracle says, or the exact one. (b) Memory does not hold both: there coswitch falls back \
             to the sequential order by itself, as the paper advises, unless a run file says \
             `short_of_memory: swap`. Groups run one after the other, orders of a group in turns. Dumps and \
             restores take processor time of the two cores on which the ranks compute, where the paper's \
             waited for disks: time that is not exposed is not saved for that."
        }
        Experiment::Fig9 => {
            "`bt` again. Three fit on a node's memory limit; what more jobs hold goes to swap."
        }
        Experiment::Fig10a => {
            "CG, class A, on links of 100 Mbit/s. Our processors are far faster than the paper's, our \
             links are not, so that one job alone already waits for the network most of its time."
        }
        Experiment::Fig10b => {
            "`bt`, class A, in Fortran, in the manner of NAS BT, on links of 250 Mbit/s. At the paper's 100 \
             Mbit/s it would, on our processors, mostly communicate, which BT did not. How long ranks of a \
             job wait is in the table, under batch. Every job needs several slots, so that jobs take turns \
             under gang as in the paper. The last group exchanges one job of three at a time, three times \
             as often (`rotation: job`, as the paper's hybrid does)."
        }
        Experiment::Fig11 => {
            "Two jobs run at a time on links of 100 Mbit/s. Hybrid takes two alike; paired takes one that \
             computes (EP) and one that communicates (CG), as measured while they run. Until all have been \
             measured, in its first turns, it takes them in order. Declared memory allows four of the \
             eight."
        }
        Experiment::Waiting => {
            "Three co-scheduled jobs that compute and communicate on the same cores, by how their ranks \
             wait. Stock MPICH polls without pause, over libfabric's tcp."
        }
    }
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{value:.decimals$}"))
}

fn spread(of: Option<MedianRange>) -> Option<String> {
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

fn section(text: &mut String, experiment: Experiment, measured: &Measured) {
    let _ = writeln!(text, "\n## {}\n\n{}\n", experiment.title(), about(experiment));
    if measured.shape != SHAPE {
        text.push_str(
            "**Measured with other jobs, slots or numbers of jobs than those described here**: \
             `cargo xtask paper --resume` measures it again.\n\n",
        );
    }
    for (name, _) in pictures::of(experiment, measured) {
        let _ = writeln!(text, "![{}](paper/{name})\n", experiment.title());
    }
    let _ = writeln!(text, "| claim | here | bound | | because |\n| --- | --- | --- | --- | --- |");
    for claim in claims::of(experiment, measured) {
        let _ = writeln!(text, "{claim}");
    }
    let failed = |group: &Group| group.problem.as_ref().map(|why| format!("{}: {why}", group.name));
    for problem in measured.groups.iter().filter_map(failed).chain(measured.problem.clone()) {
        let _ = writeln!(text, "\nNot measured: {}.", problem.replace('\n', " "));
    }
    for work in &measured.work {
        let _ = writeln!(
            text,
            "\nWork of `{}`: {} steps or repetitions, for {} s alone; {} of them took {} s, so that {} s are \
             expected.",
            work.job,
            work.amount(),
            short(work.wanted_s),
            work.measured,
            short(work.took_s),
            short(work.expected_s())
        );
    }
    if !measured.groups.is_empty() {
        text.push_str(
            "\n| jobs | policy | done | makespan, s | slowdown | spread | metric | exposed, s | waiting | \
             major faults a minute | swapped, MiB |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- \
             | --- | --- |\n",
        );
        for group in &measured.groups {
            group.arms.iter().for_each(|arm| row(text, group, arm, measured.limit_s));
        }
    }
    if experiment == Experiment::Fig9 {
        table_1(text, measured);
    }
    curves(text, experiment, measured);
    let Measured { took_s, load, repeat, .. } = measured;
    let _ =
        writeln!(text, "\nUp to {repeat} repetitions, {took_s:.0} s in all; load average {load:.1} before.");
}

fn curves(text: &mut String, experiment: Experiment, measured: &Measured) {
    let Some(first) = measured.curves.first() else { return };
    let heads: Vec<String> = match experiment {
        Experiment::Fig7 => first.points.iter().map(|(bytes, _)| format!("{bytes} B, µs")).collect(),
        _ => first.points.iter().map(|(n, _)| format!("n = {n}, s")).collect(),
    };
    let _ = writeln!(text, "\n| | {} |\n|{}", heads.join(" | "), " --- |".repeat(heads.len() + 1));
    for curve in &measured.curves {
        let cells = curve
            .points
            .iter()
            .map(|(_, values)| spread(MedianRange::of(values)).unwrap_or_else(|| "–".into()));
        let _ = writeln!(text, "| {} | {} |", curve.name, cells.collect::<Vec<_>>().join(" | "));
    }
}

/// Table 1 of the paper, and swap besides: a column for each application, their mean and deviation.
fn table_1(text: &mut String, measured: &Measured) {
    let paged = |group: &&Group| group.arms.iter().any(|arm| arm.jobs.iter().any(|job| job.swapped > 0.0));
    let groups: Vec<&Group> = measured.groups.iter().filter(paged).collect();
    let Some(most) = groups.iter().flat_map(|group| &group.arms).map(|arm| arm.jobs.len()).max() else {
        return;
    };
    let heads: String = (0..most).map(|job| format!(" app {job} |")).collect();
    let _ = writeln!(
        text,
        "\n**Table 1: each application.** Major page faults a minute over both nodes, and the most that was \
         in swap at once, as sampled. The paper's seven applications had 704 faults a minute with a \
         deviation of 474.9, its nine 507.4 with one of 47.1: with little swapping its kernel spared some \
         of them.\n\n\
         | n | |{heads} mean | deviation |\n| --- | --- |{}",
        " --- |".repeat(most + 2)
    );
    for (group, arm) in groups.iter().flat_map(|group| group.arms.iter().map(move |arm| (group, arm))) {
        let swapped: Vec<f64> = arm.jobs.iter().map(|job| job.swapped / f64::from(1 << 20)).collect();
        for (what, values) in [("faults a minute", arm.faults_of_jobs()), ("MiB in swap", swapped)] {
            let (mean, deviation) = mean_and_deviation(&values);
            let cells: String = (0..most)
                .map(|at| format!(" {} |", values.get(at).map_or_else(String::new, |value| short(*value))))
                .collect();
            let name = group.name.trim_start_matches("n = ");
            let _ = writeln!(text, "| {name} | {what} |{cells} {} | {} |", short(mean), short(deviation));
        }
    }
}

/// The page of all experiments.
pub(super) fn page(results: &Results) -> String {
    let mut text = String::from(
        "# The paper's experiments, here\n\nWritten by `cargo xtask paper`: the experiments of [paper \
         003](bibliography.md#paper-003), §5, with the programs of `examples/mpi`, the files of \
         `examples/paper`, two virtual nodes of one core and a memory limit each, and real swap. \
         Everything is scaled to two cores and minutes: the paper had 32 nodes, jobs of many minutes and \
         slots of 900 s. So shapes and ratios can be compared, seconds cannot. Jobs take turns of seconds \
         here, and a switch costs tenths of one: its share is larger than in the paper.\n\nPolicies run in \
         turns with each other. Numbers are medians, with their range in brackets. A run over the limit \
         was ended, counts as slower than all others (a ratio with it is *without end*), and was not \
         repeated. *Slowdown* is the makespan divided by the sum of the times alone (the paper's Table 2). \
         *Spread* is the standard deviation of the turnarounds divided by their mean, and *metric* the sum \
         of both, the paper's trade-off metric. A number of Table 2 counts as reached up to 5 % beside \
         it. *Exposed* is the time in which no job ran because of a \
         switch. *Waiting* is the share of their running time that ranks waited for messages. Faults and \
         swap are those of the whole machine. Lines and points of the paper in the pictures are numbers \
         that it gives in words or tables; its pictures have more.\n",
    );
    for experiment in Experiment::value_variants() {
        match results.experiments.get(experiment) {
            Some(measured) => section(&mut text, *experiment, measured),
            None => {
                let _ = writeln!(
                    text,
                    "\n## {}\n\nNot measured yet: `cargo xtask paper --resume`.",
                    experiment.title()
                );
            }
        }
    }
    if pictures::fairness(results).is_some() {
        text.push_str(
            "\n## Fairness\n\nThe second term of the paper's metric is the standard deviation of the \
             turnarounds divided by their mean. Where jobs are unequal it measures the mix, not \
             unfairness; under batch it is large because the last job waits for all others. The tables \
             above show both terms.\n\n![The trade-off metric of all policies](paper/fairness.svg)\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_application_has_its_faults_and_their_deviation() {
        let job = |faults, mib: u32| super::super::arm::Paging {
            major_faults_a_minute: Some(faults),
            swapped: f64::from(mib) * 1048576.0,
        };
        let arm = |jobs| Arm { policy: "cosched".into(), jobs, ..Arm::default() };
        let group = |n: u32, jobs| Group { name: format!("n = {n}"), arms: vec![arm(jobs)], problem: None };
        let groups = vec![group(1, vec![job(0.0, 0)]), group(2, vec![job(10.0, 8), job(30.0, 16)])];
        let mut text = String::new();
        table_1(&mut text, &Measured { groups, ..Measured::default() });
        assert!(text.contains("| n | | app 0 | app 1 | mean | deviation |"), "{text}");
        assert!(text.contains("| 2 | faults a minute | 10.0 | 30.0 | 20.0 | 10.0 |"), "{text}");
        assert!(text.contains("| 2 | MiB in swap | 8.00 | 16.0 | 12.0 | 4.00 |"), "{text}");
        assert!(!text.contains("| 1 |"), "nothing was in swap: {text}");
    }

    #[test]
    fn failed_and_missing_experiments_are_on_the_page() {
        let mut results = Results::default();
        let problem = Some("no criu".to_owned());
        let group = Group { name: "four of each".into(), arms: Vec::new(), problem };
        results
            .experiments
            .insert(Experiment::Fig11, Measured { groups: vec![group], ..Measured::default() });
        let page = page(&results);
        assert!(page.contains("Not measured: four of each: no criu.") && page.contains("**not measured**"));
        assert_eq!(page.matches("Not measured yet").count(), 6);
        assert_eq!(page.matches("Measured with other jobs").count(), 1);
        results.experiments.get_mut(&Experiment::Fig11).unwrap().shape = SHAPE;
        assert!(!super::page(&results).contains("Measured with other jobs"));
    }
}
