//! The binary `coswitch`.
#![allow(clippy::print_stdout, reason = "a schema goes to standard output")]

fn main() {
    print!("{}", coswitch::config::schema_text());
}
