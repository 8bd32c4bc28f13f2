//! The program that `cargo xtask conformance` starts.

fn main() -> std::process::ExitCode {
    coswitch_conformance::conformance()
}
