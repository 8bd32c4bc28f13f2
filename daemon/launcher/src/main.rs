//! The program `coswitch-launcher`: first the midwife of PID 1, then, executed again, PID 1 itself.
//!
//! It is small on purpose: its memory is part of every image of the application.

mod birth;
mod pid1;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => birth::run(),
        Some(birth::PID1) => pid1::run(),
        Some(_) => {
            eprintln!("coswitch-launcher is started by coswitchd and takes no arguments");
            ExitCode::from(2)
        }
    }
}
