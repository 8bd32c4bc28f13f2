//! Pictures of the live page as SVG, which need no script: who is in the memory of each node over time, and
//! what it holds now. Lengths are percentages, so that they fit every width.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{Bytes, ForeseenTurn, JobId, NodeId, Outlook, SimTime};
use maud::{Markup, html};

use super::{LiveColours, blocks::blocks, steps::step_marks};
use crate::{Recent, history::History, lives::LifeStage, words};

/// The height of a node's band, and of the steps below it.
const BAND: f64 = 64.0;
const LANE: f64 = 5.0;

/// What the pictures are made from.
pub struct Source<'a> {
    pub recent: &'a Recent,
    pub colours: &'a LiveColours,
    pub turns: &'a [ForeseenTurn],
    /// What each job may expect.
    pub outlooks: &'a BTreeMap<JobId, Outlook>,
    pub now: SimTime,
    /// So much of the past is shown, and as much of the time to come.
    pub window: Duration,
}

/// The bands of some nodes, ready to be drawn one by one.
pub struct Strips<'a> {
    source: Source<'a>,
    history: History,
    bars: Vec<Bar>,
    marks: Vec<super::steps::StepMark>,
}

/// A job in the memory of a node.
struct Bar {
    node: NodeId,
    job: JobId,
    look: &'static str,
    from: f64,
    to: f64,
    low: Bytes,
    high: Bytes,
}

impl<'a> Strips<'a> {
    #[must_use]
    pub fn new(source: Source<'a>, nodes: u32) -> Self {
        let history = source.recent.history(source.now);
        let (past, _) = blocks(&history);
        let past = past.iter().filter(|block| block.node.0 < nodes).map(|block| Bar {
            node: block.node,
            job: block.job,
            look: look(block.stage),
            from: seconds(block.span.from),
            to: seconds(block.span.to),
            low: block.low,
            high: block.high,
        });
        let foreseen = (0..nodes).map(NodeId).flat_map(|node| foreseen(&source, &history, node));
        let bars = past.chain(foreseen).collect();
        let (marks, _) = step_marks(&history);
        Self { source, history, bars, marks }
    }

    /// The band of one node. The script moves what is in `.flow` with the time.
    #[must_use]
    pub fn band(&self, node: NodeId, name: &str) -> Markup {
        let capacity = self.history.capacity.on(node).0.max(1) as f64;
        let here: Vec<&Bar> = self.bars.iter().filter(|bar| bar.node == node).collect();
        let top = here.iter().map(|bar| bar.high.0 as f64 / capacity).fold(1.0, f64::max);
        let y = |bytes: Bytes| BAND * (1.0 - bytes.0 as f64 / capacity / top);
        let marks = self.marks.iter().filter(|mark| mark.node == node.0);
        let says = self.says(name, &here);
        html! {
            svg.strip role="img" aria-label=(says) width="100%" height=(BAND + LANE + 3.0) {
                rect.paper width="100%" height=(BAND) {}
                rect.past width="50%" height=(BAND) {}
                g.flow {
                    @for bar in here {
                        @if let Some((x, width)) = self.place(bar.from, bar.to) {
                            @let name = self.history.name(bar.job);
                            @let height = (y(bar.low) - y(bar.high) - 1.0).max(1.0);
                            svg class={ (bar.look) " " (self.source.colours.class(&name, bar.job)) }
                                x=(percent(x)) width=(percent(width))
                                y=(decimal(y(bar.high))) height=(decimal(height)) {
                                rect width="100%" height="100%" rx="2" {}
                                @if bar.look == "moves" { rect.hatch width="100%" height="100%" rx="2" {} }
                                @if height >= 13.0 { text x="5" y=(decimal(height / 2.0 + 4.0)) { (name) } }
                            }
                        }
                    }
                    @for mark in marks {
                        @if let Some((x, width)) = self.place(mark.from, mark.to) {
                            rect class=(if mark.hidden { "hidden-step" } else { "exposed" })
                                x=(percent(x)) width=(percent(width)) y=(BAND + 2.0) height=(LANE) {}
                        }
                    }
                }
                @let limit = decimal(y(self.history.capacity.on(node)));
                line.limit x1="0" x2="100%" y1=(limit) y2=(limit) {}
                line.now x1="50%" x2="50%" y1="0" y2="100%" {}
            }
        }
    }

    /// Begin and length of what is seen of a stretch of time, in percent.
    fn place(&self, from: f64, to: f64) -> Option<(f64, f64)> {
        let window = self.source.window.as_secs_f64().max(0.001);
        let now = seconds(self.source.now);
        let x = |at: f64| ((at - now) / window).clamp(-1.0, 1.0).mul_add(50.0, 50.0);
        // Something is left beyond the right edge, to come in with the time.
        let (x, end) = (x(from), x(to));
        (end > x).then_some((x, end - x))
    }

    fn says(&self, name: &str, here: &[&Bar]) -> String {
        let now = seconds(self.source.now);
        let present = here.iter().filter(|bar| bar.look != "foreseen" && bar.to >= now);
        let jobs: Vec<String> =
            present.map(|bar| format!("{} {}", self.history.name(bar.job), in_words(bar.look))).collect();
        match jobs.is_empty() {
            true => format!("{name}: no job in memory"),
            false => format!("{name}: {}", words::list(&jobs)),
        }
    }
}

const fn look(stage: LifeStage) -> &'static str {
    match stage {
        LifeStage::Running => "runs",
        LifeStage::Coming | LifeStage::Leaving => "moves",
        LifeStage::Waiting | LifeStage::Suspended | LifeStage::Parked => "rests",
    }
}

fn in_words(look: &str) -> &str {
    match look {
        "runs" => "runs",
        "moves" => "comes or leaves",
        _ => "is suspended",
    }
}

/// The jobs that are to run on a node, each as high as the memory that it declares there, in the lowest gap.
fn foreseen(source: &Source<'_>, history: &History, node: NodeId) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for turn in source.turns {
        for (job, placement) in &turn.jobs {
            let ranks = u64::from(placement.count_on(node));
            let Some((from, to)) = stretch(source, turn, *job).filter(|_| ranks > 0) else { continue };
            let memory = history.jobs.get(job).map_or(Bytes(0), |job| job.memory);
            let memory = Bytes(memory.0.saturating_mul(ranks));
            let low = lowest_gap(bars.iter().filter(|bar| bar.from < to && bar.to > from), memory);
            let high = low.saturating_add(memory);
            bars.push(Bar { node, job: *job, look: "foreseen", from, to, low, high });
        }
    }
    bars
}

/// The part of a turn in which a job is to run: it may come later, and end sooner.
fn stretch(source: &Source<'_>, turn: &ForeseenTurn, job: JobId) -> Option<(f64, f64)> {
    let end = source.now.after(source.window);
    let (from, to) = (turn.from.max(source.now), turn.until.unwrap_or(end).min(end));
    let Outlook { runs_from, done, .. } = source.outlooks.get(&job).copied().unwrap_or_default();
    let (from, to) = (from.max(runs_from.unwrap_or(from)), to.min(done.unwrap_or(to)));
    (from < to).then(|| (seconds(from), seconds(to)))
}

fn lowest_gap<'a>(bars: impl Iterator<Item = &'a Bar>, height: Bytes) -> Bytes {
    let mut taken: Vec<(Bytes, Bytes)> = bars.map(|bar| (bar.low, bar.high)).collect();
    taken.sort_unstable();
    taken
        .into_iter()
        .fold((Bytes(0), false), |(low, found), (from, to)| {
            let found = found || low.saturating_add(height) <= from;
            (if found { low } else { low.max(to) }, found)
        })
        .0
}

fn seconds(at: SimTime) -> f64 {
    Duration::from_nanos(at.0).as_secs_f64()
}

/// What the jobs of a node hold of its memory, stacked by job.
#[must_use]
pub fn memory_bar(says: &str, limit: Bytes, held: &[(String, Bytes)]) -> Markup {
    let all = held.iter().map(|(_, used)| used.0).sum::<u64>().max(limit.0).max(1) as f64;
    let mut low = 0.0;
    let parts: Vec<(&str, f64, f64)> = held
        .iter()
        .map(|(class, used)| {
            let width = used.0 as f64 / all * 100.0;
            low += width;
            (class.as_str(), low - width, width)
        })
        .collect();
    let limit = limit.0 as f64 / all * 100.0;
    html! {
        svg.memory role="img" aria-label=(says) width="100%" height="14" {
            rect.paper width="100%" height="14" rx="3" {}
            @for (class, x, width) in parts {
                rect class=(class) x=(percent(x)) width=(percent(width)) height="14" {}
            }
            @if limit < 99.95 { line.limit x1=(percent(limit)) x2=(percent(limit)) y1="0" y2="14" {} }
        }
    }
}

fn percent(of: f64) -> String {
    format!("{of:.2}%")
}

fn decimal(of: f64) -> String {
    format!("{of:.1}")
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Capacity, Placement, SlotId};

    use super::*;
    use crate::fold::tests::two_jobs_in_turn;

    #[test]
    fn a_band_has_the_past_the_time_to_come_and_words() {
        let mut recent = Recent::new(1, Capacity::OfAll(Bytes::mib(100)), Duration::from_secs(20));
        let events = two_jobs_in_turn();
        let half = events.len() / 2;
        events[..half].iter().for_each(|event| recent.on_event(event));
        let now = events[half - 1].at;
        recent.learn(JobId(1), "<next>", Bytes::mib(200));
        let turn = ForeseenTurn {
            slot: SlotId(1),
            from: now.after(Duration::from_secs(5)),
            until: None,
            jobs: [1, 0, 1].map(|job| (JobId(job), Placement::from_shares(&[1]))).into(),
        };
        let (turns, colours) = ([turn], LiveColours::default());
        let window = Duration::from_secs(20);
        let ends = Outlook { done: Some(now.after(Duration::from_secs(15))), ..Outlook::default() };
        let outlooks = BTreeMap::from([(JobId(1), ends)]);
        let source =
            Source { recent: &recent, colours: &colours, turns: &turns, outlooks: &outlooks, now, window };
        let text = Strips::new(source, 1).band(NodeId(0), "node-0").into_string();
        assert!(text.contains("class=\"foreseen h0s1\" x=\"62.50%\" width=\"25.00%\""), "{text}");
        assert!(text.contains("&lt;next&gt;") && !text.contains("<next>"), "{text}");
        assert!(text.contains("class=\"runs ") && text.contains("aria-label=\"node-0: "), "{text}");
        assert!(!text.contains("style="), "the page's policy forbids it");
    }

    #[test]
    fn a_bar_of_memory_shows_what_is_beyond_the_limit() {
        let held = [("a".to_owned(), Bytes(60)), ("b".to_owned(), Bytes(60))];
        let text = memory_bar("node-0", Bytes(100), &held).into_string();
        assert!(text.contains("class=\"b\" x=\"50.00%\" width=\"50.00%\""), "{text}");
        assert!(text.contains("x1=\"83.33%\""), "{text}");
        assert!(!memory_bar("", Bytes(120), &held).into_string().contains("limit"));
    }
}
