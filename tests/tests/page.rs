//! The page of a run in a browser: drawn without errors, small, one file, light and dark, accessible by
//! keyboard and screen reader.

use std::{fs, path::Path, process::Command, time::Duration};

use coswitch_policies::{Bytes, Capacity, JobId, NodeId, Placement, Policy, Purpose, SwitchId, SwitchOrder};
use coswitch_report::{
    journal::{self, Event, JobMemory, JobOutcome, RunEvent, RunOutcome, SwitchStep},
    page::page,
};
use coswitch_tests::{browser::Browser, cluster::RUN_LIMIT, master::Master, parts};
use serde_json::Value;

const PAGE_BYTES_MAX: u64 = 2 << 20;
/// Time-out of opening a page, which takes a second on an idle machine.
const OPENS_WITHIN: Duration = Duration::from_secs(30);

/// Two sets that do not fit together.
const TURNS: &str = r#"
cluster: {nodes: 2, memory: 200MiB, network: {rate: 1Gbit}, store: "{store}"}
scheduler: {policy: hybrid, quantum: 1500ms, switching: sequential}
jobs:
  - name: heat
    command: ["{bin}/heat", --memory, 60MiB, --seconds, "3"]
    ranks: 2
    memory: 100MiB
    count: 2
  - name: cg
    command: ["{bin}/cg", --class, A, --seconds, "2"]
    ranks: 2
    memory: 60MiB
    count: 2
"#;

#[test]
fn page_of_a_real_run_is_drawn_readable_and_accessible() {
    let scratch = tempfile::tempdir().unwrap();
    let file = page_of_a_run(scratch.path());
    assert!(fs::metadata(&file).unwrap().len() < PAGE_BYTES_MAX);
    let mut browser = Browser::start();
    let mut backgrounds = Vec::new();
    for scheme in ["light", "dark"] {
        let took = browser.open(&file, scheme);
        eprintln!("{scheme}: open after {took:?}, drawn after {} ms", browser.evaluate(DRAWN));
        assert!(took < OPENS_WITHIN, "{took:?}");
        assert_eq!(browser.complaints(), [""; 0]);
        assert_eq!(browser.requests(), [format!("file://{}", file.display())], "it loads nothing");
        check_drawing(&mut browser);
        check_contrast(&mut browser, scheme);
        backgrounds.push(browser.evaluate(BACKGROUND));
    }
    assert_ne!(backgrounds[0], backgrounds[1], "the page follows the system's colour scheme");
    browser.evaluate("document.querySelector('.theme input[value=light]').click()");
    assert_eq!(browser.evaluate(BACKGROUND), backgrounds[0], "the reader's choice overrides it");
    check_accessibility_tree(&mut browser);
    check_keyboard(&mut browser);
    check_buttons(&mut browser);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Runs the jobs and creates the page, the trace and the table with `coswitch report`.
fn page_of_a_run(scratch: &Path) -> std::path::PathBuf {
    let master = Master::run(TURNS);
    let (from, journal) = (master.out().join(journal::FILE_NAME), scratch.join(journal::FILE_NAME));
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, || {
        fs::copy(&from, &journal).unwrap();
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let stored = ended.report.as_ref().and_then(|report| report["stored"].as_object()).unwrap();
    assert_eq!(stored.len(), 1, "one directory was named: {stored:?}");
    assert!(stored.values().all(|bytes| bytes.as_u64() > Some(0)), "{stored:?}");
    let [page, trace, table] = ["page.html", "trace.json", "jobs.csv"].map(|name| scratch.join(name));
    let made = Command::new(parts::coswitch())
        .arg("report")
        .arg(scratch)
        .arg("--html")
        .arg(&page)
        .arg("--trace")
        .arg(&trace)
        .arg("--csv")
        .arg(&table)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let trace: Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    let dumps = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["name"] == "dump");
    assert!(dumps.count() >= 4, "two jobs on two nodes were dumped at least once");
    assert_eq!(fs::read_to_string(table).unwrap().lines().count(), 5);
    page
}

/// Two jobs that fit together.
const COMPARED: &str = r#"
cluster: {nodes: 2, memory: 200MiB, store: "{store}"}
scheduler: {policy: hybrid, quantum: 1s}
jobs:
  - {name: heat, command: ["{bin}/heat", --memory, 30MiB, --seconds, "1"], ranks: 2, memory: 60MiB}
  - {name: cg, command: ["{bin}/cg", --class, W, --seconds, "1"], ranks: 2, memory: 60MiB}
"#;

#[test]
fn page_of_a_real_comparison_is_drawn_and_readable() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("compared.html");
    let path = file.display().to_string();
    let arguments = ["compare", "--policies", "batch,cosched,gang", "--repeat", "2", "--html", &path];
    let ended = Master::with_arguments(&arguments, COMPARED).end(2 * RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(fs::metadata(&file).unwrap().len() < PAGE_BYTES_MAX);
    let mut browser = Browser::start();
    for scheme in ["light", "dark"] {
        browser.open(&file, scheme);
        assert_eq!(browser.complaints(), [""; 0]);
        assert_eq!(browser.requests(), [format!("file://{path}")], "it loads nothing");
        assert_eq!(count(&mut browser, "[data-chart=arms] .arms rect"), 3);
        assert_eq!(count(&mut browser, "table tbody tr"), 6, "times and costs of three policies");
        check_contrast(&mut browser, scheme);
    }
    let told = browser.accessible();
    let has = |role: &str, part: &str| told.iter().any(|(of, name)| of == role && name.contains(part));
    for (role, part) in
        [("heading", "coswitch comparison"), ("image", "batch: "), ("StaticText", " of batch.")]
    {
        assert!(has(role, part), "{role} {part}: {told:?}");
    }
    browser.evaluate("document.querySelector('[data-chart=arms] .mark-item').focus()");
    let first = browser.evaluate(FOCUSED);
    browser.press("ArrowDown", 40);
    assert_ne!(browser.evaluate(FOCUSED), first, "the arrow keys move between bars");
}

const DRAWN: &str = "document.documentElement.dataset.drawn";
const BACKGROUND: &str = "getComputedStyle(document.body).backgroundColor";

fn count(browser: &mut Browser, selector: &str) -> u64 {
    let expression = format!("document.querySelectorAll({selector:?}).length");
    browser.evaluate(&expression).as_u64().unwrap()
}

fn check_drawing(browser: &mut Browser) {
    let least = [
        ("[data-chart=matrix] .blocks rect", 16),
        ("[data-chart=matrix] .steps rect", 8),
        ("[data-chart=memory] .areas path", 8),
        ("[data-chart=bars] .bars rect", 8),
        (".story dd", 5),
        (".tiles dd", 12),
        ("table tbody tr", 10),
    ];
    for (selector, least) in least {
        let found = count(browser, selector);
        assert!(found >= least, "{found} of {selector}");
    }
    let wide = "document.documentElement.scrollWidth <= innerWidth";
    assert_eq!(browser.evaluate(wide), true, "the page needs no horizontal scrolling");
}

/// Checks that text has a contrast of 4.5, on the page and on the jobs' colours.
fn check_contrast(browser: &mut Browser, scheme: &str) {
    let texts = "p, dt, dd, small, th, td, a, summary, li, figcaption, text[fill='var(--quiet)']";
    assert_eq!(browser.faint_texts(texts), serde_json::json!([]), "{scheme}");
    // As the names on blocks are.
    browser.evaluate(
        r#"document.querySelectorAll(".jobs button").forEach((button) => {
          const probe = document.body.appendChild(document.createElement("b"));
          probe.className = "on-job";
          probe.textContent = button.textContent;
          probe.style.color = "var(--on-job)";
          probe.style.background = `var(--j${button.dataset.job})`;
        })"#,
    );
    assert_eq!(browser.faint_texts(".on-job"), serde_json::json!([]), "{scheme}");
    browser.evaluate("document.querySelectorAll('.on-job').forEach((probe) => probe.remove())");
}

fn check_accessibility_tree(browser: &mut Browser) {
    let told = browser.accessible();
    let has = |role: &str, part: &str| told.iter().any(|(of, name)| of == role && name.contains(part));
    for landmark in ["banner", "main", "contentinfo"] {
        assert!(told.iter().any(|(role, _)| role == landmark), "{landmark} of {told:?}");
    }
    for heading in ["coswitch report", "jobs", "The matrix over time", "Memory of each node", "Jobs"] {
        assert!(has("heading", heading), "{heading}");
    }
    assert!(has("StaticText", " stood still for "), "the text names the job that waited most");
    for label in ["dumping heat-", "restoring ", "exposed: no job computed", "declared 100 MiB"] {
        assert!(has("image", label), "{label}");
    }
    assert!(!told.iter().any(|(role, name)| role == "image" && name.is_empty()), "every mark has a name");
}

const FOCUSED: &str = "document.activeElement.getAttribute('aria-label')";

fn check_keyboard(browser: &mut Browser) {
    assert_eq!(count(browser, "[data-chart=matrix] .mark-item[tabindex='0']"), 1, "one stop of the tab key");
    browser.evaluate("document.querySelector('[data-zoom=all]').previousElementSibling.focus()");
    browser.evaluate("document.querySelector('[data-zoom=in]').focus()");
    browser.press("Tab", 9);
    let first = browser.evaluate(FOCUSED);
    assert!(first.as_str().is_some_and(|label| label.contains(" on node-0")), "{first}");
    browser.press("ArrowRight", 39);
    let second = browser.evaluate(FOCUSED);
    assert_ne!(first, second);
    let tip = "document.getElementById('tip').hidden ? null : document.getElementById('tip').textContent";
    assert_eq!(browser.evaluate(tip), second, "the tip shows the same text");
    browser.press("End", 35);
    assert!(browser.evaluate(FOCUSED).as_str().is_some_and(|label| label.contains(" on node-1")));
    browser.press("Escape", 27);
    assert_eq!(browser.evaluate(tip), Value::Null);
}

fn check_buttons(browser: &mut Browser) {
    let blocks = count(browser, "[data-chart=matrix] .blocks rect");
    for _ in 0..3 {
        browser.evaluate("document.querySelector('[data-zoom=in]').click()");
    }
    assert!(count(browser, "[data-chart=matrix] .blocks rect") < blocks, "a shorter time shows fewer blocks");
    browser.evaluate("document.querySelector('[data-zoom=all]').click()");
    assert_eq!(count(browser, "[data-chart=matrix] .blocks rect"), blocks);
    browser.evaluate("document.querySelector('.jobs button').click()");
    let dimmed = count(browser, "[data-chart=matrix] .dim");
    assert!(dimmed > 0 && dimmed < blocks, "{dimmed} of {blocks}");
    browser.evaluate("document.querySelector('.jobs button').click()");
    assert_eq!(count(browser, ".dim"), 0);
}

/// Twenty jobs on four nodes, in ten sets that take 600 turns.
fn many_turns() -> Vec<RunEvent> {
    const NODES: u32 = 4;
    let jobs = |set: u32| [JobId(2 * set), JobId(2 * set + 1)];
    let placement = Placement::from_shares(&[1; NODES as usize]);
    let mut events = Vec::new();
    let mut tell =
        |millis: u64, kind| events.push(RunEvent { at: Duration::from_millis(millis).into(), kind });
    tell(
        0,
        Event::RunStarted {
            version: journal::VERSION,
            run: "many".into(),
            name: "many".into(),
            policy: Policy::Hybrid,
            nodes: NODES,
            capacity: Capacity::OfAll(Bytes::mib(1000)),
            quantum: Duration::from_secs(5),
            scheduler: None,
            local: None,
        },
    );
    for job in (0..20).map(JobId) {
        let (name, memory) = (format!("{}-{}", ["heat", "cg"][job.0 as usize % 2], job.0), Bytes::mib(400));
        tell(0, Event::JobSubmitted { job, name, ranks: NODES, memory, alone: None });
    }
    for turn in 0..600 {
        let (outgoing, incoming) = (jobs((turn + 9) % 10), jobs(turn % 10));
        let outgoing: Vec<JobId> = if turn == 0 { Vec::new() } else { outgoing.into() };
        let (now, switch) = (u64::from(turn) * 5000, SwitchId(turn));
        let (purpose, order) = (Purpose::Turn, SwitchOrder::Sequential);
        let (parked, bytes) = (Some(outgoing.clone()), Bytes::mib(800));
        tell(
            now,
            Event::SwitchStarted {
                switch,
                purpose,
                order,
                outgoing: outgoing.clone(),
                parked,
                incoming: incoming.into(),
            },
        );
        let out = [
            (SwitchStep::Flush, 0, 20),
            (SwitchStep::Dump, 20, 400),
            (SwitchStep::Release, 400, 410),
            (SwitchStep::Seal, 410, 2000),
        ];
        let steps = outgoing.iter().flat_map(|job| out.map(|step| (*job, step)));
        let back = incoming.map(|job| (job, (SwitchStep::Restore, 420, 900)));
        for (job, (step, began, ended)) in steps.chain(back.into_iter().filter(|_| turn >= 10)) {
            for node in (0..NODES).map(NodeId) {
                let [began, ended] = [began, ended].map(|at| Duration::from_millis(now + at).into());
                tell(
                    now + 900,
                    Event::StepDone { switch, job, node, step, began, ended, bytes: Bytes::mib(400) },
                );
            }
        }
        for job in incoming {
            if turn < 10 {
                tell(now + 900, Event::JobLaunched { job, placement: placement.clone() });
            }
            tell(now + 950, Event::JobRunning { job });
        }
        let exposed = Duration::from_millis(950);
        tell(
            now + 950,
            Event::SwitchEnded {
                switch,
                restore: None,
                exposed,
                bytes_out: bytes,
                bytes_in: bytes,
                misplaced: vec![],
            },
        );
        for sample in 0..50 {
            for node in (0..NODES).map(NodeId) {
                let by_job = incoming
                    .map(|job| JobMemory { job, used: Bytes::mib(300), swapped: Bytes(0), major_faults: 0 })
                    .into();
                tell(
                    now + 950 + 80 * sample,
                    Event::MemorySample {
                        node,
                        used: Bytes::mib(600),
                        by_job,
                        looks: 1,
                        peak: Bytes::mib(600),
                    },
                );
            }
        }
    }
    for job in (0..20).map(JobId) {
        tell(3_000_000, Event::JobFinished { job, outcome: JobOutcome::Exit(0), last_output: String::new() });
    }
    tell(3_000_000, Event::RunEnded { outcome: RunOutcome::Done });
    events
}

#[test]
fn page_of_a_long_run_of_twenty_jobs_is_small_and_opens() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("page.html");
    fs::write(&file, page(&[many_turns()])).unwrap();
    let bytes = fs::metadata(&file).unwrap().len();
    let mut browser = Browser::start();
    let took = browser.open(&file, "light");
    eprintln!("{bytes} bytes, open after {took:?}, drawn after {} ms", browser.evaluate(DRAWN));
    assert!(bytes < PAGE_BYTES_MAX, "{bytes} bytes");
    assert!(took < OPENS_WITHIN, "{took:?}");
    assert_eq!(browser.complaints(), [""; 0]);
    assert!(count(&mut browser, "[data-chart=matrix] .blocks rect") > 1000);
}
