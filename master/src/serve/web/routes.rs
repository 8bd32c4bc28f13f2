//! What the server of the live page answers.

use std::{borrow::Cow, collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State as With},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{
        Html, IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::get,
};
use futures_util::stream;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{sleep, timeout},
};

use super::{
    access::{Access, Denied, Shown},
    page,
    token::Token,
    watch::{State, View, Views},
};
use crate::serve::metrics;

/// So many may look at the same time.
const VIEWERS_MAX: usize = 32;
/// A page that nobody has looked at waits so long for its first picture.
const FIRST_VIEW_LIMIT: Duration = Duration::from_secs(3);
const LAST_VIEW_LIMIT: Duration = Duration::from_millis(300);
/// A browser that hears nothing for longer may think that the connection is dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The picture of a page that has lost its connection is asked for again after this.
const RETRY: Duration = Duration::from_secs(1);

/// The page loads only what this server has, runs no script of its text, and is shown in no other page.
const SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
                               connect-src 'self'; \
                               base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const DENIED_TOKEN: &str = "The live page of this cluster needs its token.\n\n\
    Open the whole address that `coswitch serve --http` has told; root finds it in `http-url` in the \
    directory of the cluster. Programs send `Authorization: Bearer TOKEN`, with the token in `http-token` \
    there.\n";

#[derive(Clone)]
pub(super) struct Web {
    pub(super) access: Arc<Access>,
    pub(super) token: Token,
    pub(super) views: Views,
    pub(super) registry: Arc<Registry>,
    pub(super) viewers: Arc<Semaphore>,
    /// Whether the server ends.
    pub(super) stop: watch::Receiver<bool>,
}

impl Web {
    pub(super) fn viewers() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(VIEWERS_MAX))
    }

    pub(super) fn routes(self) -> Router {
        let at = |name: &str| format!("{}{name}", self.access.path);
        let file = |kind: &'static str, text: Cow<'static, str>| {
            get(async move || ([(header::CONTENT_TYPE, kind)], text.clone()))
        };
        Router::new()
            .route("/", get(enter))
            .route("/metrics", get(numbers))
            .route(&at(""), get(live))
            .route(&at("events"), get(events))
            .route(&at("style.css"), file("text/css; charset=utf-8", page::style().into()))
            .route(&at("script.js"), file("text/javascript; charset=utf-8", page::SCRIPT.into()))
            .route(&at("icon.svg"), file("image/svg+xml", page::ICON.into()))
            .fallback(async || (StatusCode::NOT_FOUND, "There is no such page; the live page is at /.\n"))
            .layer(from_fn_with_state(self.clone(), guard))
            .with_state(self)
    }
}

/// Lets only those through who show the token.
async fn guard(With(web): With<Web>, mut request: Request, next: Next) -> Response {
    let mut response = match web.access.check(request.method(), request.uri(), request.headers()) {
        Ok(shown) => {
            request.extensions_mut().insert(shown);
            next.run(request).await
        }
        Err(denied) => deny(denied),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn deny(denied: Denied) -> Response {
    match denied {
        Denied::Method => {
            let allow = [(header::ALLOW, "GET, HEAD")];
            (StatusCode::METHOD_NOT_ALLOWED, allow, "The live page only shows: GET and HEAD.\n")
                .into_response()
        }
        Denied::Host => {
            let text = "This server answers to the addresses and the names of its machine, not to the Host \
                        of this request.\n";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        }
        Denied::OtherSite => {
            (StatusCode::FORBIDDEN, "Pages of other sites may not ask this server.\n").into_response()
        }
        Denied::NoToken | Denied::WrongToken => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"coswitch\"")];
            (StatusCode::UNAUTHORIZED, challenge, DENIED_TOKEN).into_response()
        }
    }
}

/// Gives a browser the cookie, and leads it to the page, whose address does not hold the token.
async fn enter(With(web): With<Web>, request: Request) -> Response {
    let path = web.access.path.as_str();
    match request.extensions().get() {
        // A redirection would be part of the navigation that brought the user here, also from another site,
        // and browsers keep the cookie from such ones.
        Some(Shown::Address) => {
            let cookie = web.access.cookie_of(&web.token);
            ([(header::SET_COOKIE, cookie)], Html(page::entrance(path).into_string())).into_response()
        }
        _ => (StatusCode::SEE_OTHER, [(header::LOCATION, path.to_owned())]).into_response(),
    }
}

async fn live(With(web): With<Web>) -> Response {
    let mut views = web.views.look();
    let view = match timeout(FIRST_VIEW_LIMIT, views.wait_for(|view| view.is_of_now())).await {
        Ok(Ok(view)) => Arc::clone(&view),
        _ => Arc::new(View::empty()),
    };
    Html(page::page(&view).into_string()).into_response()
}

/// A viewer's connection.
struct Viewer {
    views: watch::Receiver<Arc<View>>,
    stop: watch::Receiver<bool>,
    /// The parts that it has.
    sent: BTreeMap<&'static str, Arc<str>>,
    begun: bool,
    over: bool,
    _place: OwnedSemaphorePermit,
}

/// The parts of the page that have changed, whenever some have.
async fn events(With(web): With<Web>) -> Response {
    let Ok(place) = Arc::clone(&web.viewers).try_acquire_owned() else {
        let text = format!("{VIEWERS_MAX} pages are open already: close one and try again.\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let (views, sent) = (web.views.look(), BTreeMap::new());
    let viewer = Viewer { views, stop: web.stop.clone(), sent, begun: false, over: false, _place: place };
    let news = stream::unfold(viewer, async |mut viewer| {
        let event = viewer.next().await?;
        Some((Ok::<_, Infallible>(event), viewer))
    });
    Sse::new(news).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

impl Viewer {
    async fn next(&mut self) -> Option<Event> {
        if self.over {
            return None;
        }
        if self.begun {
            let stopped = async {
                let _ = self.stop.wait_for(|stop| *stop).await;
                // The end of the cluster may be being drawn.
                sleep(LAST_VIEW_LIMIT).await;
            };
            tokio::select! {
                biased;
                changed = self.views.changed() => changed.ok()?,
                () = stopped => return None,
            }
        }
        let view = Arc::clone(&self.views.borrow_and_update());
        let retry = (!self.begun).then_some(RETRY);
        self.begun = true;
        self.over = view.state == State::Ended;
        let event = Event::default().data(self.news(&view).to_string());
        Some(retry.into_iter().fold(event, Event::retry))
    }

    /// What it does not have yet.
    fn news(&mut self, view: &View) -> serde_json::Value {
        let is_new = |(id, text): &&(&'static str, Arc<str>)| {
            self.sent.get(id).is_none_or(|known| !Arc::ptr_eq(known, text))
        };
        let parts: BTreeMap<&'static str, Arc<str>> = view.parts.iter().filter(is_new).cloned().collect();
        let state = page::state_word(view.state);
        let news = json!({"now": page::millis(view.now()), "state": state, "parts": parts});
        self.sent.extend(parts);
        news
    }
}

async fn numbers(With(web): With<Web>) -> Response {
    metrics::answer(&web.registry)
}
