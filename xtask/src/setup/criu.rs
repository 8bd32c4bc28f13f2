//! Choice of a CRIU that is new enough and works with this kernel: the distribution's, else a private copy.
//!
//! Every candidate must dump and restore a process on this machine before it is taken.

use super::private_criu;
use super::stamp::Stamp;
use super::version::{CRIU_MIN, Version};
use super::{Prefix, apt, self_test};
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Returns the CRIU to use, installing one where needed.
pub(super) fn ensure(prefix: &Prefix, retest: bool) -> Result<Stamp> {
    let kernel = nix::sys::utsname::uname()?.release().to_string_lossy().into_owned();
    if let Some(stamp) = Stamp::load(&prefix.criu_stamp())
        && let Ok(version) = Version::of_binary(&stamp.binary)
        && version == stamp.version
    {
        if stamp.kernel == kernel && !retest {
            return Ok(stamp);
        }
        if let Ok(stamp) = accept(&stamp.binary, &stamp.source, &kernel) {
            stamp.save(&prefix.criu_stamp())?;
            return Ok(stamp);
        }
    }
    let stamp = choose(prefix, &kernel)?;
    stamp.save(&prefix.criu_stamp())?;
    Ok(stamp)
}

/// Tries the candidates from the least to the most intrusive and collects the reasons of refusals.
fn choose(prefix: &Prefix, kernel: &str) -> Result<Stamp> {
    let mut refusals = Vec::new();
    match from_distribution(kernel) {
        Ok(stamp) => return Ok(stamp),
        Err(error) => refusals.push(format!("distribution: {error:#}")),
    }
    for suite in private_criu::SUITES {
        let installed = private_criu::install(prefix, suite);
        match installed.and_then(|()| accept(&prefix.criu_binary(), suite.name(), kernel)) {
            Ok(stamp) => return Ok(stamp),
            Err(error) => refusals.push(format!("{}: {error:#}", suite.name())),
        }
    }
    bail!("no CRIU {CRIU_MIN} or newer works here\n{}", refusals.join("\n"))
}

fn from_distribution(kernel: &str) -> Result<Stamp> {
    if apt::find_program("criu").is_none() {
        let candidate = apt::candidate("criu").context("it has no package criu")?;
        match Version::parse(&candidate) {
            Some(version) if version >= CRIU_MIN => apt::install(&["criu"])?,
            _ => bail!("its criu {candidate} is older than {CRIU_MIN}"),
        }
    }
    let binary = apt::find_program("criu").context("its package criu brings no program")?;
    accept(&binary, "the distribution", kernel)
}

fn accept(binary: &Path, source: &str, kernel: &str) -> Result<Stamp> {
    let version = Version::of_binary(binary)?;
    if version < CRIU_MIN {
        bail!("criu {version} is older than {CRIU_MIN}");
    }
    self_test::run(binary).with_context(|| format!("criu {version} failed its self-test"))?;
    Ok(Stamp { binary: binary.to_owned(), version, source: source.to_owned(), kernel: kernel.to_owned() })
}
