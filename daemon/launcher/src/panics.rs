//! What a panic does in the programs of coswitch.

use std::{panic, process};

/// From now on a panic on any thread ends this process, whatever its profile was built for, so that what is
/// tested is what is installed. Nothing goes on with half of its threads or tasks: what has to outlive the
/// process is on a disk, or with another one.
pub fn end_the_process() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        tell(panicked);
        process::abort();
    }));
}
