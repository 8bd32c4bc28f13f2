//! The Ousterhout matrix of the next minute: a row for each turn, a column for each node with its memory.

use std::time::Duration;

use coswitch_policies::{Bytes, ForeseenTurn, JobId, NodeId, SimTime};
use coswitch_report::words::{plural, span};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::{Paragraph, Widget},
};

use super::{block, shortened};
use crate::top::model::Model;

/// `▶slot-12 in 1 min 20 s `
const LABEL: u16 = 24;
const COLUMN_MIN: u16 = 16;
const COLUMN_MAX: u16 = 36;
/// The title, the names of the nodes, and the bars of their memory.
pub(super) const HEAD: u16 = 3;
/// The jobs of a cell have these by their numbers.
const COLOURS: [Color; 6] =
    [Color::Green, Color::Yellow, Color::Cyan, Color::Magenta, Color::Blue, Color::LightRed];

/// How many lines the matrix takes: the jobs need some, too.
pub(super) fn height(model: &Model, screen: u16) -> u16 {
    height_of_all(model).min((screen * 2 / 5).max(HEAD + 1))
}

pub(super) fn height_of_all(model: &Model) -> u16 {
    let turns = u16::try_from(model.watched.status.timetable.turns.len().max(1)).unwrap_or(u16::MAX);
    HEAD.saturating_add(turns)
}

pub(super) fn render(model: &Model, at: Duration, area: Rect, buffer: &mut Buffer) {
    let columns = Columns::of(model, area.width);
    let rows = usize::from(area.height.saturating_sub(HEAD));
    let now = model.watched.now(at);
    // A turn that is over by the clock makes way for the next one before the cluster says so.
    let turns = &model.watched.status.timetable.turns;
    let is_over = |turn: &&ForeseenTurn| turn.until.is_some_and(|until| until <= now);
    let over = turns.iter().take_while(is_over).count().min(turns.len().saturating_sub(1));
    let turns = &turns[over..];
    block(title(model, turns.len(), rows, &columns)).render(area, buffer);
    let mut lines = vec![columns.names(model), columns.memory(model)];
    if turns.is_empty() {
        lines.push(Line::from("no turns: nothing is to run").dim());
    }
    lines.extend(turns.iter().take(rows).map(|turn| row(model, now, turn, &columns)));
    let inner = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    Paragraph::new(lines).render(inner, buffer);
}

fn title(model: &Model, turns: usize, rows: usize, columns: &Columns) -> String {
    let nodes = model.watched.status.cluster.cluster.nodes as usize;
    let mut title = String::from("Turns of the next minute");
    if turns > rows {
        title += &format!(", {rows} of {turns}");
    }
    if columns.count < nodes {
        let (first, last) = (columns.first + 1, columns.first + columns.count);
        title += &format!("; nodes {first} to {last} of {}", plural(nodes, "node"));
    }
    title
}

/// The nodes that are shown.
struct Columns {
    first: usize,
    count: usize,
    width: u16,
}

impl Columns {
    fn of(model: &Model, width: u16) -> Self {
        let nodes = model.watched.status.cluster.cluster.nodes;
        let space = width.saturating_sub(LABEL);
        let fitting = (space / COLUMN_MIN).max(1);
        let count = u16::try_from(nodes).unwrap_or(u16::MAX).min(fitting).max(1);
        let column = (space / count).clamp(1, COLUMN_MAX);
        let count = usize::from(count);
        Self { first: model.first_node.min((nodes as usize).saturating_sub(count)), count, width: column }
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let first = u32::try_from(self.first).unwrap_or(u32::MAX);
        (first..).take(self.count).map(NodeId)
    }

    fn text(&self) -> usize {
        usize::from(self.width.saturating_sub(1))
    }

    /// The name of each node and what its jobs hold.
    fn names(&self, model: &Model) -> Line<'static> {
        let memory = &model.watched.status.cluster.cluster.memory;
        let mut spans = vec![padded(String::new(), LABEL.into())];
        for node in self.nodes() {
            let name = model.watched.node_name(node);
            let used = model.watched.memory.get(&node).copied();
            let text = match used {
                Some(used) => {
                    let long = format!("{name} {used} of {}", memory.on(node));
                    if long.len() <= self.text() { long } else { format!("{name} {used}") }
                }
                None => name,
            };
            spans.push(padded(shortened(&text, self.text()), self.width.into()).bold());
        }
        spans.into()
    }

    fn memory(&self, model: &Model) -> Line<'static> {
        let memory = &model.watched.status.cluster.cluster.memory;
        let mut spans = vec![padded("memory".into(), LABEL.into()).dim()];
        for node in self.nodes() {
            let used = model.watched.memory.get(&node).copied().unwrap_or_default();
            spans.extend(bar(used, memory.on(node), self.text()));
            spans.push(" ".into());
        }
        spans.into()
    }
}

/// A bar of so many columns. Where more is used than the limit, it is red.
fn bar(used: Bytes, limit: Bytes, width: usize) -> [Span<'static>; 2] {
    let share = used.0 as f64 / limit.0.max(1) as f64;
    let full = ((share * width as f64).round() as usize).min(width);
    let full = if used.0 > 0 { full.max(1) } else { full };
    let colour = if share > 1.0 { Color::Red } else { Color::Blue };
    [Span::styled("█".repeat(full), colour), Span::from("░".repeat(width.saturating_sub(full))).dim()]
}

fn row(model: &Model, now: SimTime, turn: &ForeseenTurn, columns: &Columns) -> Line<'static> {
    let is_present = model.watched.has_begun(turn, now);
    let when = match (is_present, turn.until) {
        (true, Some(until)) => format!("{} left", span(until.since(now))),
        (true, None) => "until a job ends".into(),
        (false, _) if turn.from <= now => "after switch".into(),
        (false, _) => format!("in {}", span(turn.from.since(now))),
    };
    let mark = if is_present { '▶' } else { ' ' };
    let label = shortened(&format!("{mark}{} {when}", turn.slot), usize::from(LABEL - 1));
    let label = padded(label, LABEL.into());
    let mut spans = vec![if is_present { label.bold() } else { label }];
    for node in columns.nodes() {
        spans.extend(cell(model, turn, node, columns));
    }
    spans.into()
}

/// The names of the jobs that a node runs in a turn, each in its colour.
fn cell(model: &Model, turn: &ForeseenTurn, node: NodeId, columns: &Columns) -> Vec<Span<'static>> {
    let here = turn.jobs.iter().filter(|(_, placement)| placement.count_on(node) > 0);
    let jobs: Vec<JobId> = here.map(|(job, _)| *job).collect();
    let mut left = columns.text();
    let mut spans = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        let rest = jobs.len() - index;
        let name = model.watched.name(*job);
        // ` +2`: so many more.
        let needed = name.chars().count() + if rest > 1 { 3 } else { 0 } + usize::from(index > 0);
        if needed > left && index > 0 {
            spans.push(Span::from(shortened(&format!(" +{rest}"), left)));
            break;
        }
        if index > 0 {
            spans.push(" ".into());
            left -= 1;
        }
        let name = shortened(&name, left);
        left = left.saturating_sub(name.chars().count());
        spans.push(Span::styled(name, COLOURS[job.0 as usize % COLOURS.len()]));
    }
    if jobs.is_empty() {
        spans.push(Span::from("·").dim());
    }
    let used: usize = spans.iter().map(Span::width).sum();
    spans.push(" ".repeat(usize::from(columns.width).saturating_sub(used)).into());
    spans
}

fn padded(text: String, width: usize) -> Span<'static> {
    let gap = width.saturating_sub(Span::from(text.as_str()).width());
    Span::styled(text + &" ".repeat(gap), Style::new())
}
