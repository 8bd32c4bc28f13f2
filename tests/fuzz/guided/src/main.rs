//! A fuzz target under libFuzzer, which drives the program: `COSWITCH_FUZZ_TARGET` names it.

#![no_main]

use std::sync::LazyLock;

use coswitch_fuzz::{Target, target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("COSWITCH_FUZZ_TARGET").expect("COSWITCH_FUZZ_TARGET names a target");
    target(&name).unwrap_or_else(|| panic!("there is no target {name}"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.read)(bytes));
