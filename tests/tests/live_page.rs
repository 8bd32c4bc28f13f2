//! The live page of a cluster (`coswitch serve --http`) in a browser: it follows the cluster, over the death
//! of its master too, loads nothing from elsewhere, can be read and used without a pointer, and opens only
//! for the token.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
};

use coswitch_tests::{
    browser::Browser,
    cluster::RUN_LIMIT,
    master::Master,
    serving::{ENDLESS, HEAT, accepted, check_right, end, serve_with, state, submit, wait_served},
};
use serde_json::{Value, json};

/// Two jobs of 90 MiB on each node do not fit together.
const CLUSTER: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 1500ms, residency: none}
"#;

/// Where a live page is.
struct Place {
    port: u16,
    token: String,
    /// With the token.
    url: String,
}

impl Place {
    fn of(master: &Master) -> Self {
        let path = master.out().join("http-url");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let url = fs::read_to_string(path).unwrap().trim_end().to_owned();
        let token = fs::read_to_string(master.out().join("http-token")).unwrap().trim_end().to_owned();
        let port = url.split(['/', ':']).nth(4).and_then(|port| port.parse().ok()).expect("a port");
        assert_eq!(url, format!("http://127.0.0.1:{port}/?token={token}"));
        Self { port, token, url }
    }

    /// The whole answer to a request with these lines in its head.
    fn ask(&self, request: &str, head: &[&str]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the page is served");
        stream.set_read_timeout(Some(RUN_LIMIT)).expect("a time-out");
        let host = format!("host: 127.0.0.1:{}", self.port);
        let own =
            if head.iter().any(|line| line.starts_with("host:")) { vec![] } else { vec![host.as_str()] };
        let lines = [&[request, "connection: close"], own.as_slice(), head].concat().join("\r\n");
        stream.write_all(format!("{lines}\r\n\r\n").as_bytes()).expect("it is asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }
}

/// A port that nobody has, for a page that comes back where it was.
fn free_port() -> String {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).unwrap().port().to_string()
}

#[test]
fn a_live_page_follows_the_cluster_over_the_death_of_its_master() {
    let port = free_port();
    let mut master = serve_with(&["--http", &port], CLUSTER);
    let place = Place::of(&master);
    check_doors(&place);
    check_other_servers(&master, &port);
    accepted(&submit(&master, &["--name", "endless"], ENDLESS));
    accepted(&submit(&master, &["--name", "heat", "--alone", "2s"], HEAT));
    let mut browser = Browser::start();
    browser.open_address(&place.url, "light");
    browser.wait_until("document.body.dataset.state === 'live'");
    let address = browser.evaluate("location.href");
    assert!(!address.as_str().unwrap().contains(&place.token), "the token is not in the address: {address}");
    // Turns change.
    const PRESENT: &str = "document.querySelector('#turns .present .chip')?.textContent";
    for name in ["endless", "heat", "endless"] {
        browser.wait_until(&format!("{PRESENT} === '{name}'"));
    }
    browser.wait_until("document.querySelectorAll('#switches table tbody tr').length >= 2");
    browser.wait_until(
        "document.querySelectorAll('#time svg.strip .runs, #time svg.strip .foreseen').length >= 4",
    );
    browser.wait_until("document.querySelectorAll('#nodes svg.memory rect').length >= 4");
    check_reading(&mut browser);
    check_keyboard(&mut browser);
    // A job ends.
    browser.wait_until("document.querySelector('#news').textContent.includes('heat ended: done')");
    browser.wait_until("!document.querySelector('#jobs').textContent.includes('heat')");
    check_right(&master, "heat");
    assert_eq!(browser.complaints(), [""; 0]);
    let own = format!("http://127.0.0.1:{port}/");
    for request in browser.requests() {
        assert!(request.starts_with(&own), "it loads only from its server: {request}");
    }
    // The master dies: the page says so and stands still.
    master.kill();
    browser.wait_until("document.body.dataset.state === 'lost'");
    assert!(told(&mut browser).starts_with("Connection lost since "));
    const CLOCKS: &str = "[...document.querySelectorAll('.clock')].map((clock) => clock.textContent).join()";
    // A tick that was due may still come.
    const A_WHILE: &str = "new Promise((done) => setTimeout(done, 1500))";
    browser.evaluate(A_WHILE);
    let stood = browser.evaluate(CLOCKS);
    browser.evaluate(A_WHILE);
    assert_eq!(browser.evaluate(CLOCKS), stood, "the clocks stand still");
    // The next one has the same token, and the page that is open goes on.
    master.start_next();
    wait_served(&mut master);
    browser.wait_until("document.body.dataset.state === 'live'");
    assert_eq!(Place::of(&master).url, place.url);
    master.wait_until("a turn", RUN_LIMIT, |master| state(master, "endless") == "running");
    browser.wait_until(&format!("{PRESENT} === 'endless'"));
    let files = ["http-url", "http-token"].map(|name| master.out().join(name));
    let out = master.out().to_owned();
    end(master);
    browser.wait_until("document.body.dataset.state === 'ended'");
    assert!(told(&mut browser).starts_with("The cluster ended at "));
    let links = browser.evaluate("[...document.links].map((link) => link.getAttribute('href'))");
    assert_eq!(links, json!(["#main"]), "nothing leads to a server that is gone");
    assert!(files.iter().all(|file| !file.exists()), "the token is forgotten: {}", out.display());
}

fn told(browser: &mut Browser) -> String {
    browser.evaluate("document.getElementById('state').textContent").as_str().unwrap().to_owned()
}

/// Who has no token, calls another name, or comes from elsewhere stays outside.
fn check_doors(place: &Place) {
    let bearer = format!("authorization: Bearer {}", place.token);
    let code = |request: &str, head: &[&str]| {
        let answer = place.ask(request, head);
        let code: u16 = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
        let head = answer.to_lowercase();
        for always in [
            "content-security-policy: default-src 'none';",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
        ] {
            assert!(head.contains(always), "{always} in {answer}");
        }
        code
    };
    let none = place.ask("GET / HTTP/1.1", &[]);
    assert!(none.starts_with("HTTP/1.1 401 ") && none.contains("needs its token"), "{none}");
    for path in ["/metrics", "/live-0000000000000000/", "/nothing", "/?token=1234"] {
        assert_eq!(code(&format!("GET {path} HTTP/1.1"), &[]), 401, "{path}");
    }
    assert_eq!(code("GET /metrics HTTP/1.1", &["authorization: Bearer 0000"]), 401);
    assert_eq!(code("GET /nothing HTTP/1.1", &[&bearer]), 404);
    assert_eq!(code("POST /metrics HTTP/1.1", &[&bearer, "content-length: 0"]), 405);
    assert_eq!(code("GET /metrics HTTP/1.1", &[&bearer, "host: rebound.example"]), 421);
    assert_eq!(code("GET /metrics HTTP/1.1", &[&bearer, "origin: http://other.example"]), 403);
    assert_eq!(code("GET /metrics HTTP/1.1", &[&bearer, "sec-fetch-site: cross-site"]), 403);
    let metrics = place.ask("GET /metrics HTTP/1.1", &[&bearer]);
    assert!(metrics.contains("content-type: application/openmetrics-text; version=1.0.0"), "{metrics}");
    check_open_metrics(metrics.split("\r\n\r\n").nth(1).expect("a body"));
}

/// Each sample belongs to a family that was declared before, counters end in `_total`, units in the name of
/// their family.
fn check_open_metrics(text: &str) {
    assert!(text.trim_end().ends_with("# EOF"), "{text}");
    let (mut family, mut kind) = ("", "");
    for line in text.lines().filter(|line| !line.is_empty() && *line != "# EOF") {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "HELP", of, ..] => (family, kind) = (of, ""),
            ["#", "TYPE", of, is] => {
                assert_eq!(of, family, "{line}");
                kind = is;
            }
            ["#", "UNIT", of, unit] => assert!(of == family && of.ends_with(unit), "{line}"),
            [sample, value] => {
                let name = sample.split('{').next().unwrap_or_default();
                let total = if kind == "counter" { "_total" } else { "" };
                assert_eq!(name, format!("{family}{total}"), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
            _ => panic!("{line}"),
        }
    }
}

/// A port that is in use, and an address that is none.
fn check_other_servers(master: &Master, port: &str) {
    for (at, code, says) in [(port, 4, "is in use"), ("jobs.yaml:x", 2, "it is no address")] {
        let mut second = master.command(&[
            "serve",
            "--quiet",
            "--socket",
            "other.sock",
            "--out",
            "other",
            "jobs.yaml",
            "--http",
            at,
        ]);
        let second = second.output().expect("coswitch starts");
        let told = String::from_utf8_lossy(&second.stderr);
        assert!(second.status.code() == Some(code) && told.contains(says), "{at}: {second:?}");
    }
}

/// The page can be read: light and dark, wide and narrow, and by a screen reader.
fn check_reading(browser: &mut Browser) {
    let mut papers = Vec::new();
    for (scheme, width) in [("light", 1300), ("dark", 390)] {
        browser.resize(width, 900);
        browser.prefer(scheme);
        // A name in a picture lies on the colour of its job, as it does in a chip.
        let texts = "p, dt, dd, small, th, td, li, .chip, .clock, .state, .idle, #state";
        assert_eq!(browser.faint_texts(texts), json!([]), "{scheme}");
        let wide = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]");
        assert!(wide[0].as_u64() <= wide[1].as_u64(), "it scrolls sideways at {width}: {wide}");
        papers.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(papers[0], papers[1], "the page follows the system's colour scheme");
    browser.evaluate("document.querySelector('.theme input[value=light]').click()");
    assert_eq!(browser.evaluate("getComputedStyle(document.body).backgroundColor"), papers[0]);
    browser.resize(1300, 900);
    let heard = browser.accessible();
    let has = |role: &str, part: &str| heard.iter().any(|(of, name)| of == role && name.contains(part));
    for (role, part) in [
        ("banner", ""),
        ("main", ""),
        ("contentinfo", ""),
        ("status", ""),
        ("heading", "Turns"),
        ("heading", "Jobs"),
        ("columnheader", "node-1"),
        ("rowheader", "slot-"),
        ("image", "node-0: "),
        ("StaticText", "Live"),
    ] {
        assert!(has(role, part), "{role} {part}: {heard:?}");
    }
    assert!(!heard.iter().any(|(role, name)| role == "image" && name.is_empty()), "every picture has a name");
}

/// The keyboard reaches what scrolls, and changes of the page do not take the focus away.
fn check_keyboard(browser: &mut Browser) {
    const FOCUSED: &str = "document.activeElement.getAttribute('aria-label')";
    browser.evaluate("document.querySelector('.theme input:checked').focus()");
    browser.press("Tab", 9);
    assert_eq!(browser.evaluate(FOCUSED), "Turns by node");
    let drawn = |browser: &mut Browser| {
        browser.evaluate("document.documentElement.dataset.drawn").as_str().map(String::from)
    };
    let before: Option<u64> = drawn(browser).and_then(|drawn| drawn.parse().ok());
    browser.wait_until(&format!(
        "Number(document.documentElement.dataset.drawn) > {} + 4",
        before.expect("a number")
    ));
    assert_eq!(browser.evaluate(FOCUSED), Value::from("Turns by node"), "it keeps the focus");
}
