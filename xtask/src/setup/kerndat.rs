//! CRIU's cache of kernel features, made once so that the self-test does not probe under load.
//!
//! CRIU writes the cache only where `/run` is a tmpfs; elsewhere each call probes anew, and a probe was seen
//! to stall for over a minute on busy cores. So the cache is made in a mount namespace with a tmpfs at
//! `/run`, and copied out; CRIU reads a plain file as well. The node daemon does the same at each boot
//! (`coswitch-ckpt`).

use crate::command;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const CACHE: &str = "/run/criu.kdat";
const LIMIT: Duration = Duration::from_secs(240);

/// Makes the cache of `binary` and replaces that of another build.
pub(super) fn make(binary: &Path) -> Result<()> {
    let fresh = format!("{CACHE}.setup-{}", std::process::id());
    let script = r#"exec 9>"$2"; mount -t tmpfs criu-probe /run && "$1" check >&2; cat /run/criu.kdat >&9"#;
    let mut probe = Command::new("unshare");
    probe.args(["--mount", "--propagation", "private", "sh", "-c", script, "probe"]).arg(binary).arg(&fresh);
    let made = command::run(&mut probe, LIMIT).and_then(|_| {
        ensure!(fs::metadata(&fresh)?.len() > 0, "criu wrote no cache");
        fs::rename(&fresh, CACHE).context("cannot put the cache in place")
    });
    if made.is_err() {
        fs::remove_file(&fresh).ok();
    }
    made.context("cannot make CRIU's kernel cache")
}
