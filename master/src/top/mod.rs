//! `coswitch top`: a live picture of a cluster on the terminal.
//!
//! ```text
//!   cluster ── answers, events ──▶ [`follow`] ─┐
//!   terminal ── keys, size ──▶ [`keys`] ───────┴─ News ──▶ [`model`] ──▶ [`render`] ──▶ terminal
//! ```
//! The model and the picture are pure; this file is their shell.

mod follow;
mod keys;
mod model;
mod render;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use ratatui::{DefaultTerminal, buffer::Buffer, layout::Rect};

use crate::{client::Client, watching::Status};
pub(crate) use follow::ask;
pub(crate) use model::Over;
use model::{Model, News};

/// The clocks in the picture go on by tenths of a second.
const FRAME_EVERY: Duration = Duration::from_millis(200);

/// The columns of a frame that is printed, where the terminal does not tell.
const WIDTH: u16 = 100;

/// Shows the cluster until the user or the cluster ends it. The terminal is restored, also after a panic.
///
/// # Errors
/// Where the terminal cannot be written.
pub(crate) fn watch(client: Client, status: Status) -> io::Result<Over> {
    let (news, heard) = channel();
    let began = Instant::now();
    let model = Model::new(began.elapsed(), status);
    let terminal = ratatui::try_init()?;
    // Both end with the process.
    let from_keys = news.clone();
    thread::Builder::new().name("keys".into()).spawn(move || keys::read(&from_keys))?;
    thread::Builder::new().name("follow".into()).spawn(move || follow::follow(&client, &news))?;
    let over = draw(terminal, model, began, &heard);
    ratatui::try_restore()?;
    over
}

fn draw(
    mut terminal: DefaultTerminal,
    mut model: Model,
    began: Instant,
    heard: &Receiver<News>,
) -> io::Result<Over> {
    let mut due = Instant::now();
    loop {
        terminal.draw(|frame| render::render(&model, began.elapsed(), frame.area(), frame.buffer_mut()))?;
        due = (due + FRAME_EVERY).max(Instant::now());
        // At least one piece of news, or a frame's time; then all that is there.
        let mut limit = due.saturating_duration_since(Instant::now());
        loop {
            match heard.recv_timeout(limit) {
                Ok(news) => {
                    let is_urgent = matches!(news, News::Key(_) | News::Resized);
                    if let Some(over) = model.on(began.elapsed(), news) {
                        return Ok(over);
                    }
                    if is_urgent {
                        break;
                    }
                    limit = due.saturating_duration_since(Instant::now());
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Ok(Over::Quit),
            }
        }
    }
}

/// One frame as text, with all turns and jobs.
pub(crate) fn frame(status: &Status) -> String {
    let model = Model::new(Duration::ZERO, status.clone());
    let width = ratatui::crossterm::terminal::size().map_or(WIDTH, |(width, _)| width.max(WIDTH));
    let height = render::height_of_all(&model);
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    render::render_all(&model, area, &mut buffer);
    text_of(&buffer)
}

/// The lines of a buffer, without colours and without blanks at their ends.
fn text_of(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(buffer.area.width).max(1)) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}
