//! The program `coswitchd`, the node daemon; `coswitch run` starts one for each virtual node.

use std::process::ExitCode;

fn main() -> ExitCode {
    coswitch_ckpt::private::restrict_umask();
    // A disk that is slow or full delays no heartbeat. The guard writes what is left at the end.
    let (log, _guard) = tracing_appender::non_blocking(std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("COSWITCH_LOG"))
        .with_writer(log)
        .with_ansi(false)
        .init();
    match coswitch_daemon::serve::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coswitchd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
