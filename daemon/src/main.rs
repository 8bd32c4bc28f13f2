//! The program `coswitchd`, the node daemon; `coswitch run` starts one for each virtual node.

use std::process::ExitCode;

fn main() -> ExitCode {
    coswitch_ckpt::private::restrict_umask();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("COSWITCH_LOG"))
        .with_writer(std::io::stderr)
        .init();
    match coswitch_daemon::serve::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coswitchd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
