//! The master scheduler and the command line.
fn main() {}
