//! `cargo xtask fuzz`: searches for inputs that the readers of foreign bytes do not survive, guided by the
//! code that inputs reach. The targets and what they were tried with are in `tests/fuzz`.

use crate::command;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// To begin, and to end after its time.
const MARGIN: Duration = Duration::from_secs(120);
/// Where the targets are, from the root.
const CORPUS: &str = "tests/fuzz/corpus";
const MANIFEST: &str = "tests/fuzz/guided/Cargo.toml";
/// Counters at each edge, of programs that any stable compiler builds.
const INSTRUMENTED: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setup: setup::Args,
    /// One of the directories of `tests/fuzz/corpus` [default: each of them in turn].
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// How long each target is tried, after the build.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Add to the corpus what reaches code that nothing of it reaches.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::new(&args.setup)?;
    let home = workspace.target().join("fuzz");
    let corpus = workspace.root().join(CORPUS);
    let mut known: Vec<String> = fs::read_dir(&corpus)
        .with_context(|| format!("cannot read {}", corpus.display()))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    known.sort();
    if let Some(strange) = args.target.iter().find(|name| !known.contains(name)) {
        bail!("there is no target {strange}; there are {}", known.join(", "));
    }
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build =
        workspace.cargo(&["build", "--release", "--manifest-path", MANIFEST, "--target", &triple]);
    build.env("CARGO_TARGET_DIR", &home).env("RUSTFLAGS", INSTRUMENTED);
    command::show(&mut build, BUILD_LIMIT).context("the build failed")?;
    let program = home.join(triple).join("release/guided");
    let chosen = if args.target.is_empty() { &known } else { &args.target };
    let failed: Vec<&String> = chosen
        .iter()
        .filter(|name| {
            let tried = search(&workspace, &program, &home, &corpus, name, args);
            tried.inspect_err(|error| eprintln!("{name}: {error:#}")).is_err()
        })
        .collect();
    ensure!(failed.is_empty(), "{failed:?} did not survive; keep what was found in {CORPUS}");
    Ok(())
}

fn search(
    workspace: &Workspace,
    program: &Path,
    home: &Path,
    corpus: &Path,
    name: &str,
    args: &Args,
) -> Result<()> {
    let (seeds, found) = (corpus.join(name), home.join("found").join(name));
    let artifacts = home.join("failures");
    for dir in [&found, &artifacts] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let guided = |options: &[String]| {
        let mut guided = workspace.here(program);
        guided
            .env("COSWITCH_FUZZ_TARGET", name)
            .arg(format!("-artifact_prefix={}/{name}-", artifacts.display()));
        guided.args(["-rss_limit_mb=1024", "-timeout=20", "-verbosity=0"]).args(options);
        guided
    };
    let time = format!("-max_total_time={}", args.seconds);
    let mut run = guided(&[time, "-print_final_stats=1".into(), "-close_fd_mask=0".into()]);
    eprintln!("{name}:");
    command::show(run.arg(&found).arg(&seeds), Duration::from_secs(args.seconds) + MARGIN)?;
    if args.keep {
        let mut merge = guided(&["-set_cover_merge=1".into()]);
        command::show(merge.arg(&seeds).arg(&found), BUILD_LIMIT).context("the corpus was not merged")?;
    }
    Ok(())
}
