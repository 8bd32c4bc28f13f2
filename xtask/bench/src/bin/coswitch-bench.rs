//! See [`coswitch_bench`].

fn main() -> std::process::ExitCode {
    coswitch_bench::bench()
}
