//! Reads keys and changes of size from the terminal, on a thread of its own.

use std::sync::mpsc::Sender;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};

use super::model::{Key, News};

/// Passes on what the user does, until the terminal is gone or nobody listens.
pub(super) fn read(news: &Sender<News>) {
    loop {
        let heard = match event::read() {
            Ok(Event::Key(key)) if key.is_press() => meaning(key).map(News::Key),
            Ok(Event::Resize(..)) => Some(News::Resized),
            Ok(_) => None,
            Err(_) => Some(News::Terminated),
        };
        let is_end = matches!(heard, Some(News::Terminated));
        if heard.is_some_and(|heard| news.send(heard).is_err()) || is_end {
            return;
        }
    }
}

fn meaning(key: KeyEvent) -> Option<Key> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c' | 'd') if control => Key::Quit,
        KeyCode::Char(_) if control => return None,
        KeyCode::Char('q') => Key::Quit,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown | KeyCode::Char(' ') => Key::PageDown,
        KeyCode::Left | KeyCode::Char('h') => Key::Left,
        KeyCode::Right | KeyCode::Char('l') => Key::Right,
        KeyCode::Char('s') => Key::Sort,
        KeyCode::Char('?') | KeyCode::F(1) => Key::Help,
        KeyCode::Esc => Key::Back,
        _ => return None,
    })
}
