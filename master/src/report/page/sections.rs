//! The page's sections: tiles, tables, and the places where the script draws.

use coswitch_policies::{NodeId, Policy};
use maud::{Markup, html};

use super::{
    Run,
    charts::fullest,
    palette::Palette,
    story::{Story, in_short, stood_still, story},
    words::{bytes, clock, list, percent, seconds},
};
use crate::report::JobTimes;

/// Several runs beside each other.
pub(super) fn comparison(runs: &[Run]) -> Markup {
    let first = runs.first().map_or(0.0, |run| run.report.set.makespan.as_secs_f64());
    let longest = runs.iter().map(|run| run.report.set.makespan.as_secs_f64()).fold(0.0, f64::max);
    html! {
        section #comparison aria-labelledby="comparison-title" {
            h2 #comparison-title { "Comparison of " (runs.len()) " runs" }
            div.scroll tabindex="0" role="region" aria-label="Table of the runs" {
                table {
                    thead { tr {
                        (th("run", ""))
                        (th("policy", ""))
                        (number("makespan", "last end − first submission"))
                        (number("by the first", "makespan ÷ the first run's"))
                        (number("stood still", "mean over jobs of turnaround − run"))
                        (number("utilisation", "node time with a job running ÷ all"))
                        (number("switches", "a set stopped for another"))
                        (number("exposed", "no job ran because of a switch"))
                        (number("moved", "dumps + restores"))
                        (number("spread", "deviation ÷ mean of turnarounds"))
                    } }
                    tbody {
                        @for (number, run) in runs.iter().enumerate() {
                            @let set = &run.report.set;
                            @let makespan = set.makespan.as_secs_f64();
                            tr {
                                th scope="row" { a href={ "#run-" (number) } { (run.label) } }
                                td { (policy(run.report.policy)) }
                                td.number.bar style={ "--w:" (format!("{:.1}%", 100.0 * makespan / longest.max(1e-9))) } { span { (seconds(set.makespan)) } }
                                td.number { (format!("{:.2} ×", makespan / first.max(1e-9))) }
                                td.number { (seconds(mean_still(run))) }
                                td.number { (percent(set.utilisation)) }
                                td.number { (set.switches) }
                                td.number { (seconds(set.exposed)) }
                                td.number { (bytes(set.bytes_out.saturating_add(set.bytes_in))) }
                                td.number { (format!("{:.3}", set.spread)) }
                            }
                        }
                    }
                }
            }
            (figure("bars", "Where each job's time went, run by run", "Seconds from submission to end, of the jobs that ended. The tables of jobs below have the numbers."))
        }
    }
}

fn mean_still(run: &Run) -> std::time::Duration {
    let times = run.report.jobs.iter().filter_map(|job| job.times.as_ref());
    let (sum, count) = times
        .fold((std::time::Duration::ZERO, 0), |(sum, count), times| (sum + stood_still(times), count + 1));
    sum / count.max(1)
}

fn policy(policy: Option<Policy>) -> String {
    policy.map_or_else(|| "?".into(), |policy| policy.to_string())
}

/// One run.
pub(super) fn run(number: usize, run: &Run, palette: &Palette, column: Option<f64>, alone: bool) -> Markup {
    let story = story(&run.history, &run.report);
    html! {
        article #{ "run-" (number) } data-run=(number) aria-labelledby={ "run-" (number) "-title" } {
            h2 #{ "run-" (number) "-title" } { (run.label) }
            (facts(run))
            (points(&story))
            (tiles(run))
            (matrix(run, palette, column))
            (memory(run))
            (jobs(run, &story, alone))
            (steps(run))
            (warnings(run))
        }
    }
}

fn facts(run: &Run) -> Markup {
    let (report, history) = (&run.report, &run.history);
    let switching = history.config.as_ref().map(|config| format!("{:?}", config.switching).to_lowercase());
    html! {
        p.facts {
            span { "policy " b { (policy(report.policy)) } }
            span { (report.nodes) " nodes of " (bytes(report.capacity)) }
            @if report.policy != Some(Policy::Batch) && report.policy != Some(Policy::Cosched) {
                span { "quantum " (seconds(history.quantum)) }
                @if let Some(switching) = switching { span { "switching " (switching) } }
            }
            @if !report.run.is_empty() { span { "run " code { (report.run) } } }
        }
    }
}

fn points(story: &Story) -> Markup {
    html! {
        dl.story aria-label="In short" {
            @for point in &story.points {
                div { dt { (point.about) } dd { (point.text) } }
            }
        }
    }
}

fn tiles(run: &Run) -> Markup {
    let set = &run.report.set;
    let number = |number: Option<f64>| number.map(|number| format!("{number:.3}"));
    let peak = run.report.memory.iter().max_by_key(|memory| memory.peak);
    let limit = bytes(run.report.capacity);
    let switches = match set.fallbacks {
        0 => set.switches.to_string(),
        n => format!("{} ({n} sequential)", set.switches),
    };
    let tiles = [
        ("Makespan", Some(seconds(set.makespan)), "last end − first submission"),
        ("Utilisation", Some(percent(set.utilisation)), "node time with a job running ÷ (nodes × makespan)"),
        ("Switches", Some(switches), "a set was stopped to let another run"),
        (
            "Exposed",
            Some(format!("{} ({})", seconds(set.exposed), percent(set.overhead))),
            "no job ran because of a switch; share of the makespan",
        ),
        ("Moved out", Some(bytes(set.bytes_out)), "written by dumps"),
        ("Moved in", Some(bytes(set.bytes_in)), "read by restores"),
        (
            "Memory peak",
            peak.map(|memory| format!("{} of {limit}", bytes(memory.peak))),
            "highest sample of the fullest node",
        ),
        ("Spread", number(Some(set.spread)), "standard deviation ÷ mean of the turnarounds"),
        ("Relative makespan", number(set.relative_makespan), "makespan ÷ sum of the times alone"),
        ("Trade-off metric", number(set.tradeoff), "relative makespan + spread; lower is better"),
    ];
    html! {
        dl.tiles aria-label="The set in numbers" {
            @for (name, value, how) in tiles {
                @if let Some(value) = value {
                    div { dt { (name) } dd { b { (value) } small { (how) } } }
                }
            }
        }
    }
}

fn matrix(run: &Run, palette: &Palette, column: Option<f64>) -> Markup {
    let about = "Each node is a band as high as its memory; each block is a job, as high as the memory it declared there. \
                 Below a band are the steps of switches on that node.";
    html! {
        section {
            h3 { "The matrix over time" }
            p.about {
                (about)
                @if let Some(column) = column { " Blocks are drawn in columns of " (format!("{column:.1}")) " s; the trace has every stay." }
            }
            div.bar-of-tools hidden {
                div.jobs role="group" aria-label="Show one job only" {
                    @for job in run.history.jobs.keys() {
                        @let name = run.history.name(*job);
                        @let index = palette.index(&name);
                        button type="button" aria-pressed="false" data-job=(index) style={ "--j:var(--j" (index) ")" } { (name) }
                    }
                }
                div.zoom role="group" aria-label="Stretch of time" {
                    button type="button" data-zoom="earlier" aria-label="Earlier" { "←" }
                    button type="button" data-zoom="in" aria-label="Zoom in" { "+" }
                    button type="button" data-zoom="out" aria-label="Zoom out" { "−" }
                    button type="button" data-zoom="later" aria-label="Later" { "→" }
                    button type="button" data-zoom="all" { "All" }
                }
            }
            (figure("matrix", "Who was in the memory of each node, and what switches did", "Arrow keys go from block to block; the table of switches below tells the same in numbers."))
            (switches(run))
        }
    }
}

/// A place for the script to draw in.
fn figure(chart: &str, label: &str, note: &str) -> Markup {
    html! {
        figure data-chart=(chart) data-label=(label) {
            @if chart == "bars" {
                ul.key aria-label="Key" {
                    @for part in ["running", "waiting", "suspended", "parked"] { li { i.solid style={ "background:var(--" (part) ")" } {} (part) } }
                }
            } @else if chart == "matrix" {
                ul.key aria-label="Key" {
                    li { i.solid {} "runs" }
                    li { i.pale {} "in memory, stopped" }
                    li { i.moving {} "comes or leaves" }
                    li { i.exposed {} "step exposed: nobody computed" }
                    li { i.hidden-step {} "step hidden: somebody computed" }
                }
            }
            div.chart {}
            noscript { "The chart needs JavaScript; the tables do not." }
            figcaption { (note) }
        }
    }
}

fn switches(run: &Run) -> Markup {
    let names = |jobs: &[_]| match jobs {
        [] => "–".to_string(),
        jobs => list(&jobs.iter().map(|job| run.history.name(*job)).collect::<Vec<_>>()),
    };
    html! {
        details {
            summary { "Switches as a table (" (run.history.switches.len()) ")" }
            div.scroll tabindex="0" role="region" aria-label="Table of switches" {
                table {
                    thead { tr {
                        (th("switch", "")) (number("at", "since the start")) (th("order", "of its steps")) (th("out", "stopped or left")) (th("in", "came"))
                        (number("took", "first order to last answer")) (number("exposed", "no job ran")) (number("moved out", "dumps")) (number("moved in", "restores"))
                    } }
                    tbody {
                        @for switched in &run.history.switches {
                            tr {
                                th scope="row" { (switched.switch.0) }
                                td.number { (format!("{:.1} s", clock(switched.span.from))) }
                                td { (format!("{:?}", switched.order).to_lowercase()) }
                                td { (names(&switched.outgoing)) }
                                td { (names(&switched.incoming)) }
                                td.number { (seconds(switched.span.length())) }
                                td.number { (seconds(switched.exposed)) }
                                td.number { (bytes(switched.bytes_out)) }
                                td.number { (bytes(switched.bytes_in)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn memory(run: &Run) -> Markup {
    let holders = |node: NodeId| {
        let (at, by_job) = fullest(&run.history, node)?;
        let held: Vec<String> = by_job
            .iter()
            .filter(|(_, used)| used.0 > 0)
            .map(|(job, used)| format!("{} {}", run.history.name(*job), bytes(*used)))
            .collect();
        Some((format!("{at:.1} s"), held.join(", ")))
    };
    html! {
        section {
            h3 { "Memory of each node" }
            p.about { "What the jobs of a node held, measured by its cgroup and stacked by job, against the node's limit." }
            (figure("memory", "Memory that jobs held on each node over time", "Of each stretch of time the highest sample is drawn."))
            div.scroll tabindex="0" role="region" aria-label="Table of nodes" {
                table {
                    thead { tr {
                        (th("node", "")) (number("peak", "highest sample")) (number("limit", "what it may hold of jobs")) (number("share", "peak ÷ limit")) (number("samples", "")) (number("fullest at", "since the start")) (th("then held by", "measured"))
                    } }
                    tbody {
                        @for memory in &run.report.memory {
                            @let (at, held) = holders(memory.node).unwrap_or_default();
                            tr {
                                th scope="row" { (memory.node) }
                                td.number { (bytes(memory.peak)) }
                                td.number { (bytes(memory.capacity)) }
                                td.number { (percent(memory.peak.0 as f64 / memory.capacity.0.max(1) as f64)) @if !memory.is_within() { " ⚠ above" } }
                                td.number { (memory.samples) }
                                td.number { (at) }
                                td { (held) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn jobs(run: &Run, story: &Story, alone: bool) -> Markup {
    let alone_known =
        run.report.jobs.iter().any(|job| job.times.as_ref().is_some_and(|times| times.alone.is_some()));
    let span = |times: Option<&JobTimes>, of: fn(&JobTimes) -> std::time::Duration| {
        times.map_or_else(|| "–".into(), |times| seconds(of(times)))
    };
    html! {
        section {
            h3 { "Jobs" }
            @if alone {
                (figure("bars", "Where each job's time went", "Seconds from submission to end, of the jobs that ended."))
            }
            div.scroll tabindex="0" role="region" aria-label="Table of jobs" {
                table {
                    thead { tr {
                        (th("job", "")) (number("ranks", "and what each declares"))
                        (number("wait", "first run − submission")) (number("run", "time running")) (number("suspended", "stopped in memory, or on its way")) (number("parked", "out of memory"))
                        (number("turnaround", "end − submission")) @if alone_known { (number("alone", "with the cluster to itself")) } (number("slowdown", "turnaround ÷ alone; * ÷ run")) (number("restores", ""))
                        (number("communicates", "mean share of running")) (th("outcome", "")) (th("longest stood still because", ""))
                    } }
                    tbody {
                        @for job in &run.report.jobs {
                            @let times = job.times.as_ref();
                            @let told = run.history.jobs.get(&job.job);
                            @let causes = story.causes.iter().find(|(of, _)| *of == job.job).map_or(&[][..], |(_, causes)| causes);
                            tr {
                                th scope="row" { (job.name) }
                                td.number { (job.ranks) @if let Some(told) = told { " × " (bytes(told.memory)) } }
                                td.number { (span(times, |times| times.wait)) }
                                td.number { (span(times, |times| times.run)) }
                                td.number { (span(times, |times| times.suspended)) }
                                td.number { (span(times, |times| times.parked)) }
                                td.number { (span(times, |times| times.turnaround)) }
                                @if alone_known { td.number { (times.and_then(|times| times.alone).map_or_else(|| "–".into(), seconds)) } }
                                td.number { (slowdown(times)) }
                                td.number { (job.restores) }
                                td.number { (told.and_then(|job| communicates(&job.communication)).unwrap_or_else(|| "–".into())) }
                                td { (job.outcome.as_ref().map_or_else(|| "not ended".into(), ToString::to_string)) }
                                td.why { (in_short(&run.history, causes)) }
                            }
                        }
                    }
                }
            }
            @for job in run.report.jobs.iter().filter(|job| !job.last_output.is_empty()) {
                details { summary { "Last output of " (job.name) } pre { (job.last_output) } }
            }
        }
    }
}

fn slowdown(times: Option<&JobTimes>) -> String {
    let Some((times, slowdown)) = times.and_then(|times| Some((times, times.slowdown?))) else {
        return "–".into();
    };
    format!("{slowdown:.2}{}", if times.alone.is_none() { "*" } else { "" })
}

fn communicates(shares: &[u16]) -> Option<String> {
    let sum: f64 = shares.iter().map(|share| f64::from(*share)).sum();
    #[allow(clippy::cast_precision_loss, reason = "a mean of a few thousand")]
    (!shares.is_empty()).then(|| format!("{:.0} %", sum / shares.len() as f64 / 10.0))
}

fn steps(run: &Run) -> Markup {
    html! {
        @if !run.report.phases.is_empty() {
            section {
                h3 { "What the steps of switches took" }
                div.scroll tabindex="0" role="region" aria-label="Table of steps" {
                    table {
                        thead { tr {
                            (th("step", "")) (number("times", "each job on each node")) (number("in all", "sum, though many go on side by side")) (number("mean", "in all ÷ times")) (number("longest", "")) (number("hidden", "share during which some job computed")) (number("moved", ""))
                        } }
                        tbody {
                            @for (phase, total) in &run.report.phases {
                                @let share = total.hidden.as_secs_f64() / total.total.as_secs_f64().max(f64::MIN_POSITIVE);
                                tr {
                                    th scope="row" { (phase.doing()) }
                                    td.number { (total.count) }
                                    td.number { (seconds(total.total)) }
                                    td.number { (seconds(total.total / total.count.max(1))) }
                                    td.number { (seconds(total.longest)) }
                                    td.number.bar style={ "--w:" (format!("{:.1}%", share * 100.0)) } { span { (percent(share)) } }
                                    td.number { @if total.bytes.0 > 0 { (bytes(total.bytes)) } @else { "–" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn warnings(run: &Run) -> Markup {
    html! {
        @if !run.report.warnings.is_empty() {
            section {
                h3 { "Warnings" }
                ul.warnings { @for text in &run.report.warnings { li { (text) } } }
            }
        }
    }
}

/// What each number means, as `coswitch metrics` says it.
pub(super) fn definitions() -> Markup {
    html! {
        section aria-labelledby="definitions" {
            details {
                summary #definitions { "How every number is computed" }
                pre { (crate::cli::METRICS) }
            }
        }
    }
}

/// The head of a column of numbers.
fn number(name: &str, how: &str) -> Markup {
    html! { th.number scope="col" { (name) @if !how.is_empty() { small { (how) } } } }
}

fn th(name: &str, how: &str) -> Markup {
    html! { th scope="col" { (name) @if !how.is_empty() { small { (how) } } } }
}
