//! Draws the state of `coswitch top` into a buffer, pure.

mod jobs;
mod matrix;
mod switch;

use std::time::Duration;

use coswitch_report::words::{plural, span};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, BorderType, Borders, Clear, Paragraph, Widget},
};

use super::model::Model;
use crate::api::JobState;

/// Below this nothing can be read.
const LEAST: (u16, u16) = (40, 10);

/// The lines of a printed frame: the buffer of more would be large.
const ALL_MAX: u16 = 2000;

const HELP: [&str; 14] = [
    "Rows are time slots: the turn that runs (▶) and those that follow within",
    "the next minute, as the cluster's own scheduler foresees them. It knows",
    "nothing of jobs that are still to be submitted.",
    "",
    "Columns are nodes, with the memory that their jobs hold, and the limit.",
    "",
    "q, Ctrl-C      quit",
    "Up, Down       scroll the jobs; also k, j, Page Up, Page Down",
    "Left, Right    scroll the nodes; also h, l",
    "s              sort the jobs by number, next turn, state, memory, time run",
    "?, Esc         open and close this help",
    "",
    "suspended: between turns, in memory; parked: between turns, in the store",
    "held: its user has parked it",
];

/// Draws the state as of `at` into the area of the buffer.
pub(super) fn render(model: &Model, at: Duration, area: Rect, buffer: &mut Buffer) {
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("coswitch top needs {} columns and {} lines", LEAST.0, LEAST.1);
        return Paragraph::new(text).render(area, buffer);
    }
    let turns = matrix::height(model, area.height);
    let switch = switch::lines(model, at, area.width.into());
    let parts = [
        Constraint::Length(1),
        Constraint::Length(turns),
        // Always the same, so that the jobs stay where they are.
        Constraint::Length(1 + (area.height / 6).clamp(1, 6)),
        Constraint::Min(3),
        Constraint::Length(1),
    ];
    let [title, matrix, moving, jobs, foot] = Layout::vertical(parts).areas(area);
    title_line(model, at).render(title, buffer);
    matrix::render(model, at, matrix, buffer);
    Paragraph::new(switch).block(block("Switch")).render(moving, buffer);
    jobs::render(model, at, jobs, buffer);
    foot_line(model, at, area.width.into()).render(foot, buffer);
    if model.help {
        help(area, buffer);
    }
}

/// How many lines a frame with everything has.
pub(super) fn height_of_all(model: &Model) -> u16 {
    let status = &model.watched.status;
    let switch = switch::lines(model, Duration::ZERO, usize::MAX).len();
    let lines = matrix::HEAD as usize + status.timetable.turns.len().max(1) + 2 + switch;
    let lines = lines + 2 + status.queue.jobs.len().max(1);
    u16::try_from(lines).unwrap_or(u16::MAX).min(ALL_MAX)
}

/// Draws everything, as for a screen that is high enough, without keys.
pub(super) fn render_all(model: &Model, area: Rect, buffer: &mut Buffer) {
    let switch = switch::lines(model, Duration::ZERO, area.width.into());
    let parts = [
        Constraint::Length(1),
        Constraint::Length(matrix::height_of_all(model)),
        Constraint::Length(1 + switch.len() as u16),
        Constraint::Min(3),
    ];
    let [title, matrix, moving, jobs] = Layout::vertical(parts).areas(area);
    title_line(model, Duration::ZERO).render(title, buffer);
    matrix::render(model, Duration::ZERO, matrix, buffer);
    Paragraph::new(switch).block(block("Switch")).render(moving, buffer);
    jobs::render(model, Duration::ZERO, jobs, buffer);
}

fn title_line(model: &Model, at: Duration) -> Line<'static> {
    let status = &model.watched.status;
    let of = |state: JobState| status.queue.jobs.iter().filter(|job| job.state == state).count();
    let running = of(JobState::Running);
    let jobs = match status.queue.jobs.len() {
        0 => "no jobs".into(),
        all => format!("{}, {running} running", plural(all, "job")),
    };
    let (nodes, memory) = (status.cluster.cluster.nodes as usize, &status.cluster.cluster.memory);
    let (policy, quantum) = (status.cluster.policy, span(status.cluster.quantum));
    let silent = model.watched.silence(at).map(|_| Span::styled("  NO ANSWER", warning()));
    let what = format!("  {} of {memory}, {policy}, turns of {quantum}: {jobs}", plural(nodes, "node"));
    let title = Span::from("coswitch top").bold();
    [Some(title), silent, Some(what.into())].into_iter().flatten().collect::<Vec<_>>().into()
}

/// The last line: what is wrong, or what happened last, and the keys.
fn foot_line(model: &Model, at: Duration, width: usize) -> Line<'static> {
    const KEYS: &str = "q quit  s sort  ? help";
    if let Some(silence) = model.watched.silence(at) {
        let why = model.watched.lost.as_ref().map_or_else(String::new, |(_, why)| format!(" ({why})"));
        let text = format!("no answer for {}; waiting for a master{why}", span(silence));
        return Line::styled(shortened(&text, width), warning());
    }
    let latest = model.watched.latest.as_ref().map_or_else(String::new, |(when, text)| {
        format!("{} ago: {text}", span(model.watched.now(at).since(*when)))
    });
    let latest = shortened(&latest, width.saturating_sub(KEYS.len() + 2));
    let gap = width.saturating_sub(KEYS.len() + Span::from(latest.as_str()).width());
    vec![Span::from(latest), " ".repeat(gap).into(), Span::from(KEYS).dim()].into()
}

fn help(area: Rect, buffer: &mut Buffer) {
    let (width, height) = (78.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let area = Rect { x, y, width, height };
    Clear.render(area, buffer);
    let block = Block::bordered().border_type(BorderType::Rounded).title(" Help ");
    Paragraph::new(HELP.map(Line::from).to_vec()).block(block).render(area, buffer);
}

/// A part of the picture: a line with a title above it.
fn block(title: impl Into<String>) -> Block<'static> {
    let title = format!(" {} ", title.into());
    Block::new().borders(Borders::TOP).border_style(Style::new().dim()).title(Span::from(title).not_dim())
}

const fn warning() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

const fn style_of(state: JobState) -> Style {
    let style = Style::new();
    match state {
        JobState::Running => style.fg(Color::Green),
        JobState::Suspended => style.fg(Color::Yellow),
        JobState::Parked => style.fg(Color::Cyan),
        JobState::Failed | JobState::Cancelled => style.fg(Color::Red),
        JobState::Waiting | JobState::Held | JobState::Done => style,
    }
}

/// The text, cut to so many columns.
fn shortened(text: &str, width: usize) -> String {
    if Span::from(text).width() <= width {
        return text.into();
    }
    let mut short = String::new();
    for c in text.chars() {
        short.push(c);
        if Span::from(short.as_str()).width() >= width {
            short.pop();
            break;
        }
    }
    if width > 0 {
        short.push('…');
    }
    short
}
