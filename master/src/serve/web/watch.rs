//! Watches the cluster for those who look at its live page: hears all events, asks the engine while somebody
//! looks, and draws for all of them together. However many look, and however slow they are, the engine is
//! asked once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_policies::SimTime;
use coswitch_report::{
    Recent,
    journal::{Event, RunEvent},
    page::LiveColours,
};
use tokio::{
    sync::{
        Notify,
        broadcast::{self, error::RecvError},
        mpsc::UnboundedSender,
        oneshot, watch,
    },
    task::JoinHandle,
    time::{sleep_until, timeout},
};

use super::page::{self, Scene};
use crate::{
    api::{Refusal, Reply, Request, User},
    engine::Ask,
    watching::{ASK_AGAIN, ASK_EVERY, Status, Watched, changes_what_comes},
};

/// It is drawn at most so often.
const FRAME_EVERY: Duration = Duration::from_millis(250);
/// And at least so often, to tell that the engine is silent.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The engine answers at once, unless its disk is blocked.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// What a page shows.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The parts of the page by their `id`. One that has not changed is the same.
    pub(super) parts: Vec<(&'static str, Arc<str>)>,
    pub(super) state: State,
    /// The cluster's clock at `drawn`.
    now: SimTime,
    drawn: Instant,
}

/// Whether what is shown is the present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing is known yet.
    Asking,
    Live,
    /// The engine does not answer.
    Silent,
    /// The cluster has ended as it was told to.
    Ended,
}

impl View {
    pub(super) fn empty() -> Self {
        Self { parts: Vec::new(), state: State::Asking, now: SimTime(0), drawn: Instant::now() }
    }

    /// Whether it was drawn lately.
    pub(super) fn is_of_now(&self) -> bool {
        self.state != State::Asking && self.drawn.elapsed() < 2 * LOOK_EVERY
    }

    /// The cluster's clock.
    pub(super) fn now(&self) -> SimTime {
        self.now.after(self.drawn.elapsed())
    }
}

/// Where the pages of those who look come from.
#[derive(Clone)]
pub(super) struct Views {
    views: Arc<watch::Sender<Arc<View>>>,
    arrived: Arc<Notify>,
}

impl Views {
    pub(super) fn new() -> Self {
        let (views, _) = watch::channel(Arc::new(View::empty()));
        Self { views: Arc::new(views), arrived: Arc::new(Notify::new()) }
    }

    /// Looks from now on, until the receiver is dropped.
    pub(super) fn look(&self) -> watch::Receiver<Arc<View>> {
        let views = self.views.subscribe();
        self.arrived.notify_one();
        views
    }
}

/// The watcher.
pub(super) struct Watch {
    asks: UnboundedSender<Ask>,
    recent: Recent,
    colours: LiveColours,
    window: Duration,
    watched: Option<Watched>,
    views: Views,
    began: Instant,
    /// Whether the last answer came while somebody looked.
    fresh: bool,
    ended: bool,
}

impl Watch {
    pub(super) fn new(asks: UnboundedSender<Ask>, recent: Recent, window: Duration, views: Views) -> Self {
        let colours = LiveColours::default();
        Self {
            asks,
            recent,
            colours,
            window,
            watched: None,
            views,
            began: Instant::now(),
            fresh: false,
            ended: false,
        }
    }

    /// Watches until the cluster ends.
    pub(super) async fn run(mut self, mut events: broadcast::Receiver<Arc<RunEvent>>) {
        let mut asking: Option<JoinHandle<Option<Status>>> = None;
        let (mut ask_at, mut draw_at) = (Instant::now(), Instant::now());
        let mut asked = Instant::now();
        while !self.ended {
            let somebody_looks = self.views.views.receiver_count() > 0;
            self.fresh &= somebody_looks;
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => {
                        if changes_what_comes(&event.kind) {
                            ask_at = ask_at.min(asked + ASK_AGAIN);
                        }
                        draw_at = draw_at.min(Instant::now() + FRAME_EVERY);
                        self.on_event(&event);
                    }
                    // What was missed is over; the next answer tells what is.
                    Err(RecvError::Lagged(_)) => ask_at = ask_at.min(asked + ASK_AGAIN),
                    Err(RecvError::Closed) => return,
                },
                () = self.views.arrived.notified() => {
                    ask_at = ask_at.min(asked + ASK_AGAIN);
                }
                status = answer(&mut asking) => {
                    asking = None;
                    self.on_answer(status);
                    draw_at = Instant::now();
                }
                () = sleep_until(ask_at.into()), if somebody_looks && asking.is_none() => {
                    asking = Some(tokio::spawn(ask(self.asks.clone(), self.window)));
                    asked = Instant::now();
                    ask_at = asked + ASK_EVERY;
                }
                () = sleep_until(draw_at.into()), if somebody_looks => {
                    self.draw();
                    draw_at = Instant::now() + LOOK_EVERY;
                }
            }
        }
        self.draw();
    }

    fn on_event(&mut self, event: &RunEvent) {
        self.recent.on_event(event);
        let at = self.began.elapsed();
        if let Some(watched) = &mut self.watched {
            watched.on_event(at, event);
        }
        self.ended |= matches!(event.kind, Event::RunEnded { .. });
    }

    fn on_answer(&mut self, status: Option<Status>) {
        let at = self.began.elapsed();
        // One that does not come is told as silence.
        self.fresh = true;
        let Some(status) = status else { return };
        let jobs = &status.queue.jobs;
        jobs.iter().for_each(|job| self.recent.learn(job.job, &job.name, job.memory));
        self.colours.live(jobs.iter().map(|job| job.name.as_str()));
        match &mut self.watched {
            Some(watched) => watched.on_status(at, status),
            None => self.watched = Some(Watched::new(at, status)),
        }
    }

    fn draw(&self) {
        let at = self.began.elapsed();
        let Some(watched) = self.watched.as_ref().filter(|_| self.fresh || self.ended) else { return };
        let state = match watched.silence(at) {
            _ if self.ended => State::Ended,
            Some(_) => State::Silent,
            None => State::Live,
        };
        let now = watched.now(at);
        let (recent, colours, window) = (&self.recent, &self.colours, self.window);
        let parts = page::parts(&Scene { watched, recent, colours, window, now });
        let before = self.views.views.borrow().parts.clone();
        let same = |id, text: &str| {
            let known = before.iter().find(|(of, known)| *of == id && **known == *text);
            known.map(|(_, known)| Arc::clone(known))
        };
        let parts = parts
            .into_iter()
            .map(|(id, markup)| {
                let text = markup.into_string();
                (id, same(id, &text).unwrap_or_else(|| text.into()))
            })
            .collect();
        self.views.views.send_replace(Arc::new(View { parts, state, now, drawn: Instant::now() }));
    }
}

async fn answer(asking: &mut Option<JoinHandle<Option<Status>>>) -> Option<Status> {
    match asking {
        Some(asking) => asking.await.ok().flatten(),
        None => std::future::pending().await,
    }
}

/// Asks the engine how the cluster is; `None` where it does not answer in time.
async fn ask(asks: UnboundedSender<Ask>, ahead: Duration) -> Option<Status> {
    let all = async {
        let Reply::Cluster(cluster) = put(&asks, Request::Cluster).await else { return None };
        let Reply::Jobs(queue) = put(&asks, Request::Jobs { all: false }).await else { return None };
        let Reply::Timetable(timetable) = put(&asks, Request::Timetable { ahead }).await else { return None };
        Some(Status { cluster: *cluster, queue, timetable })
    };
    timeout(ANSWER_LIMIT, all).await.ok().flatten()
}

/// As the owner of the cluster, who sees all jobs.
async fn put(asks: &UnboundedSender<Ask>, request: Request) -> Reply {
    let (answer, reply) = oneshot::channel();
    let ended = Reply::Refused(Refusal::Ending);
    match asks.send(Ask { user: User::ROOT, request, answer }) {
        Ok(()) => reply.await.unwrap_or(ended),
        Err(_) => ended,
    }
}
