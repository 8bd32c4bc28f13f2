//! A headless Chromium, controlled over the DevTools protocol, which shows a page as a reader sees it.
//!
//! The protocol uses a pair of pipes (`--remote-debugging-pipe`): JSON values, each followed by a zero byte.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Time-out of a call, long because the machine may be busy with other suites.
const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);
const FAINT_TEXTS: &str = include_str!("faint_texts.js");
const PROGRAMS: [&str; 4] = ["chromium-headless-shell", "chromium", "google-chrome", "chrome-headless-shell"];

#[derive(Debug)]
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    /// Messages since the page was opened that are not answers to calls.
    messages: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser.
    ///
    /// # Panics
    /// If none is installed, or it does not answer.
    #[must_use]
    pub fn start() -> Self {
        let profile = tempfile::tempdir().expect("a temporary directory");
        // The browser expects the pipes at descriptors 3 and 4, to which the shell moves its own.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program())
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let to = process.stdin.take().expect("stdin is a pipe");
        let mut out = BufReader::new(process.stdout.take().expect("stdout is a pipe"));
        let (tell, from) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while matches!(out.read_until(0, &mut message), Ok(length) if length > 0) {
                let value = serde_json::from_slice(message.strip_suffix(&[0]).unwrap_or(&message));
                if value.is_ok_and(|value| tell.send(value).is_err()) {
                    break;
                }
                message.clear();
            }
        });
        let mut browser =
            Self { process, to, from, session: None, calls: 0, messages: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            browser.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(String::from);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method and waits for its result.
    ///
    /// # Panics
    /// If the browser answers with an error, or not in time.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.ask(method, parameters);
        assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let text = message.to_string() + "\0";
        self.to.write_all(text.as_bytes()).expect("the browser reads its pipe");
        let id = self.calls;
        self.receive(method, |message| message["id"] == id)
    }

    /// Waits for a message and keeps the others.
    fn receive(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let left = LIMIT.saturating_sub(began.elapsed());
            let message = self.from.recv_timeout(left).unwrap_or_else(|error| panic!("{what}: {error}"));
            if is_it(&message) {
                return message;
            }
            self.messages.push(message);
        }
    }

    /// Opens a file with a light or dark colour scheme. Returns the time until it was loaded.
    pub fn open(&mut self, file: &Path, scheme: &str) -> Duration {
        self.open_address(&format!("file://{}", file.display()), scheme)
    }

    /// Shows the page in a light or dark colour scheme.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// As [`Browser::open`], for an address.
    pub fn open_address(&mut self, address: &str, scheme: &str) -> Duration {
        self.messages.clear();
        self.prefer(scheme);
        let began = Instant::now();
        self.call("Page.navigate", json!({"url": address}));
        if !self.messages.iter().any(is_loaded) {
            let loaded = self.receive("loading", is_loaded);
            self.messages.push(loaded);
        }
        began.elapsed()
    }

    /// The value of an expression on the page.
    ///
    /// # Panics
    /// If it throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression on the page is true, also over a navigation.
    ///
    /// # Panics
    /// If it is not in time.
    pub fn wait_until(&mut self, expression: &str) {
        let began = Instant::now();
        loop {
            let answer =
                self.ask("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
            if answer["result"]["result"]["value"] == true {
                return;
            }
            assert!(began.elapsed() < LIMIT, "{expression}: {answer}");
            thread::sleep(POLL);
        }
    }

    /// Gives the page a width, as of a phone.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// The texts of the selected elements that are visible and differ too little from what is behind them:
    /// the contrast has to be 4.5.
    pub fn faint_texts(&mut self, selector: &str) -> Value {
        self.evaluate(&format!("({FAINT_TEXTS})({selector:?})"))
    }

    /// Presses and releases a key, given by its DOM name and its virtual key code.
    pub fn press(&mut self, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// The accessibility tree for screen readers: role and name of each node, in order.
    pub fn accessible(&mut self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        let text = |node: &Value, field: &str| node[field]["value"].as_str().unwrap_or_default().to_string();
        let nodes = tree["nodes"].as_array().cloned().unwrap_or_default();
        nodes
            .iter()
            .filter(|node| node["ignored"] != true)
            .map(|node| (text(node, "role"), text(node, "name")))
            .collect()
    }

    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let is_one = |message: &&Value| match message["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Log.entryAdded") => true,
            Some("Runtime.consoleAPICalled") => {
                matches!(message["params"]["type"].as_str(), Some("error" | "warning" | "assert"))
            }
            _ => false,
        };
        self.messages.iter().filter(is_one).map(Value::to_string).collect()
    }

    /// Addresses that the page has requested since it was opened.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        let requests =
            self.messages.iter().filter(|message| message["method"] == "Network.requestWillBeSent");
        requests
            .filter_map(|message| message["params"]["request"]["url"].as_str().map(String::from))
            .collect()
    }
}

fn is_loaded(message: &Value) -> bool {
    message["method"] == "Page.loadEventFired"
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = PROGRAMS.iter().flat_map(|name| places.iter().map(move |place| place.join(name)));
    found
        .into_iter()
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("none of {PROGRAMS:?} is installed; `cargo xtask test` installs one"))
}
