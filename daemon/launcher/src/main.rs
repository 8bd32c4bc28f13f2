//! The program `coswitch-launcher`: first the starter of PID 1 and then, executed again, PID 1 itself.
//!
//! It is deliberately small: its memory is part of every image of the application.

mod bait;
mod pid1;
mod starter;

use std::process::ExitCode;

use coswitch_launcher::{limits, panics};
use nix::sys::stat::{Mode, umask};

/// Nobody else may read what this program creates. The ranks have the umask of their specification.
const UMASK: Mode = Mode::S_IRWXG.union(Mode::S_IRWXO);

fn main() -> ExitCode {
    panics::end_the_process();
    umask(UMASK);
    if let Err(error) = limits::lower() {
        eprintln!("failed to go back to the usual limits: {error}");
        return ExitCode::FAILURE;
    }
    match std::env::args().nth(1).as_deref() {
        None => starter::run(),
        Some(starter::PID1) => pid1::run(),
        Some(coswitch_launcher::bait::ARGUMENT) => bait::run(),
        Some(_) => {
            eprintln!("coswitch-launcher is started by coswitchd and takes no arguments");
            ExitCode::from(2)
        }
    }
}
