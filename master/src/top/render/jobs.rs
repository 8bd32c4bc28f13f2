//! The jobs: where each is, when it runs next, and when it will be done.

use std::time::Duration;

use coswitch_policies::SimTime;
use coswitch_report::words::span;
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Rect},
    style::{Style, Stylize},
    text::{Line, Text},
    widgets::{Cell, Paragraph, Row, Table, Widget},
};

use super::{block, style_of};
use crate::{
    api::{JobState, JobStatus},
    top::model::Model,
};

pub(super) fn render(model: &Model, at: Duration, area: Rect, buffer: &mut Buffer) {
    let now = model.watched.now(at);
    let jobs = model.sorted_jobs();
    // The title and the names of the columns.
    let rows = usize::from(area.height.saturating_sub(2));
    let first = model.first_job.min(jobs.len().saturating_sub(rows));
    let title = match jobs.len() {
        all if all > rows => {
            format!("Jobs {} to {} of {all}, by {}", first + 1, first + rows, model.sort.word())
        }
        _ => format!("Jobs, by {}", model.sort.word()),
    };
    if jobs.is_empty() {
        let text = "none; `coswitch submit` brings some";
        return Paragraph::new(Line::from(text).dim()).block(block("Jobs")).render(area, buffer);
    }
    let shown = jobs.into_iter().skip(first).take(rows);
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| column.from <= area.width).collect();
    let cell = |column: &Column, text: String| match column.right {
        true => Cell::from(Text::from(text).right_aligned()),
        false => Cell::from(text),
    };
    let row = |job: &JobStatus| {
        let state = |column: &Column| if column.name == "state" { style_of(job.state) } else { Style::new() };
        let cells = columns.iter().map(|column| cell(column, (column.text)(job, now)).style(state(column)));
        Row::new(cells.collect::<Vec<_>>())
    };
    let head = Row::new(columns.iter().map(|column| cell(column, column.name.into())).collect::<Vec<_>>());
    let widths = columns.iter().map(|column| column.width).collect::<Vec<_>>();
    Table::new(shown.map(row), widths).header(head.dim()).block(block(title)).render(area, buffer);
}

struct Column {
    name: &'static str,
    width: Constraint,
    right: bool,
    /// It is shown where there are so many columns of characters.
    from: u16,
    text: fn(&JobStatus, SimTime) -> String,
}

const COLUMNS: [Column; 8] = [
    column("job", Constraint::Length(4), true, 0, |job, _| job.job.0.to_string()),
    column("name", Constraint::Min(10), false, 0, |job, _| job.name.clone()),
    column("state", Constraint::Length(9), false, 0, |job, _| job.state.to_string()),
    column("ranks", Constraint::Length(11), true, 80, |job, _| format!("{} x {}", job.ranks, job.memory)),
    column("prio", Constraint::Length(5), true, 90, |job, _| job.priority.to_string()),
    column("ran", Constraint::Length(7), true, 72, |job, _| clock(job.ran)),
    column("next turn", Constraint::Length(16), false, 0, next_turn),
    column("done", Constraint::Length(13), false, 62, done),
];

const fn column(
    name: &'static str,
    width: Constraint,
    right: bool,
    from: u16,
    text: fn(&JobStatus, SimTime) -> String,
) -> Column {
    Column { name, width, right, from, text }
}

/// `1:05`, `3:20:05`.
fn clock(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

fn next_turn(job: &JobStatus, now: SimTime) -> String {
    match (job.state, job.outlook.runs_until) {
        (JobState::Running, Some(until)) => format!("now, {} left", span(until.since(now))),
        _ => job.next_turn(now),
    }
}

fn done(job: &JobStatus, now: SimTime) -> String {
    match job.outlook.done {
        Some(at) if job.state != JobState::Held => format!("in {}", span(at.since(now))),
        _ => "not known".into(),
    }
}
