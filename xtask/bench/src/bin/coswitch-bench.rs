//! See [`coswitch_bench`].

use coswitch_heap as _;

fn main() -> std::process::ExitCode {
    coswitch_bench::bench()
}
