//! The binary `coswitch`.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::Parser;
use coswitch::cli::Arguments;
use coswitch_ckpt::private::restrict_umask;
use coswitch_daemon::panics;
use coswitch_heap as _;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

fn main() -> ExitCode {
    panics::end_the_process();
    // Journals and images hold what jobs have in memory. The ranks get the user's umask back.
    let user_umask = restrict_umask();
    let arguments = Arguments::parse();
    let _guard = log_to_stderr(arguments.verbose);
    arguments.carry_out(user_umask)
}

/// Logs at the level of COSWITCH_LOG, or else of the number of `-v`. A terminal that has stopped delays
/// nothing: a thread writes, until the guard is dropped.
fn log_to_stderr(verbose: u8) -> WorkerGuard {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .with_env_var("COSWITCH_LOG")
        .from_env_lossy();
    let (log, guard) = tracing_appender::non_blocking(io::stderr());
    let is_terminal = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(log).with_ansi(is_terminal).init();
    guard
}
