//! See [`coswitch_bench::paper`].

fn main() -> std::process::ExitCode {
    coswitch_bench::paper::main()
}
