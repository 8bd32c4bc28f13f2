//! Follows the cluster, on a thread of its own: asks how it is, hears its events, and finds the next master
//! where one dies.

use std::{future::pending, io, sync::mpsc::Sender, time::Duration};

use coswitch_report::journal::{Event, RunEvent};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep, sleep_until},
};

use super::model::News;
use crate::{
    client::{Client, ClientError, Events},
    watching::{ASK_AGAIN, ASK_EVERY, Status, changes_what_comes},
};

/// The cluster answers at once, unless it is stopped.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// A master that ends removes its socket; one that takes over makes it anew at once.
const SOCKET_GONE: Duration = Duration::from_secs(4);
/// For the last frame of a terminal that has stopped.
const LAST_FRAME_LIMIT: Duration = Duration::from_secs(2);

/// Asks the cluster how it is.
///
/// # Errors
/// [`ClientError`]
pub(crate) async fn ask(client: &Client) -> Result<Status, ClientError> {
    Ok(Status {
        cluster: client.get("/v1/cluster", ANSWER_LIMIT).await?,
        queue: client.get("/v1/jobs?all=false", ANSWER_LIMIT).await?,
        timetable: client.get("/v1/timetable?ahead=60", ANSWER_LIMIT).await?,
    })
}

/// Passes on what the cluster says, until nobody listens.
pub(super) fn follow(client: &Client, news: &Sender<News>) {
    client.block_on(async {
        tokio::select! {
            () = stay_in_touch(client, news) => {}
            heard = terminated() => {
                if heard.is_ok() {
                    let _ = news.send(News::Terminated);
                    sleep(LAST_FRAME_LIMIT).await;
                    // The terminal takes nothing more, or this process would have ended.
                    let _ = ratatui::crossterm::terminal::disable_raw_mode();
                    std::process::exit(crate::cli::Exit::Interrupted as i32);
                }
            }
        }
    });
}

async fn terminated() -> io::Result<()> {
    let (mut terminate, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// Nobody listens any more.
struct Unheard;

async fn stay_in_touch(client: &Client, news: &Sender<News>) {
    let mut gone_since: Option<Instant> = None;
    loop {
        let Err(error) = connect(client, news, &mut gone_since).await else { return };
        let is_gone =
            matches!(&error, ClientError::NoCluster { cause, .. } if cause.kind() == io::ErrorKind::NotFound);
        let since = is_gone.then(|| *gone_since.get_or_insert_with(Instant::now));
        gone_since = since;
        let is_over = since.is_some_and(|since| since.elapsed() >= SOCKET_GONE);
        let heard = if is_over { News::Ended } else { News::Lost(in_short(&error)) };
        if news.send(heard).is_err() || is_over {
            return;
        }
        sleep(TRY_AGAIN).await;
    }
}

fn in_short(error: &ClientError) -> String {
    match error {
        ClientError::NoCluster { cause, .. } => cause.kind().to_string(),
        ClientError::Gone(_) | ClientError::Closed => "connection closed".into(),
        error => error.to_string(),
    }
}

/// Follows one master for as long as it answers.
async fn connect(
    client: &Client,
    news: &Sender<News>,
    gone_since: &mut Option<Instant>,
) -> Result<Unheard, ClientError> {
    // A user other than root hears no events, and has the answers alone.
    let mut events = match client.events(ANSWER_LIMIT).await {
        Ok(events) => Some(events),
        Err(ClientError::Refused(_)) => None,
        Err(error) => return Err(error),
    };
    let mut asked = Instant::now();
    let mut due = asked;
    loop {
        tokio::select! {
            event = next(&mut events) => {
                let Some(event) = event else { return Err(ClientError::Closed) };
                if changes_what_comes(&event.kind) {
                    due = due.min(asked + ASK_AGAIN);
                }
                let is_end = matches!(event.kind, Event::RunEnded { .. });
                let heard = if is_end { News::Ended } else { News::Event(Box::new(event)) };
                if news.send(heard).is_err() || is_end {
                    return Ok(Unheard);
                }
            }
            () = sleep_until(due) => {
                let status = ask(client).await?;
                *gone_since = None;
                asked = Instant::now();
                due = asked + ASK_EVERY;
                if news.send(News::Status(Box::new(status))).is_err() {
                    return Ok(Unheard);
                }
            }
        }
    }
}

async fn next(events: &mut Option<Events>) -> Option<RunEvent> {
    match events {
        Some(events) => events.next().await,
        None => pending().await,
    }
}
