//! The binary `coswitch`.

use std::{io, process::ExitCode};

use clap::Parser;
use coswitch::cli::Arguments;
use coswitch_ckpt::private::restrict_umask;
use coswitch_heap as _;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

fn main() -> ExitCode {
    // Journals and images hold what jobs have in memory. The ranks get the user's umask back.
    let user_umask = restrict_umask();
    let arguments = Arguments::parse();
    log_to_stderr(arguments.verbose);
    arguments.carry_out(user_umask)
}

/// Logs at the level of COSWITCH_LOG, or else of the number of `-v`.
fn log_to_stderr(verbose: u8) {
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
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}
