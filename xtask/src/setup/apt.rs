//! The distribution's packages: which tools are missing, and how to install them without upgrading anything.

use crate::command;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// A required program, file or module, and the package that has it.
pub(crate) struct Tool {
    probe: Probe,
    package: &'static str,
}

enum Probe {
    Program(&'static str),
    File(&'static str),
    PythonModule(&'static str),
}

/// For coswitch and its example programs.
pub(super) const TOOLS: &[Tool] = &[
    Tool { probe: Probe::Program("ip"), package: "iproute2" },
    Tool { probe: Probe::Program("tc"), package: "iproute2" },
    Tool { probe: Probe::Program("gcc"), package: "gcc" },
    Tool { probe: Probe::Program("gfortran"), package: "gfortran" },
    Tool { probe: Probe::Program("make"), package: "make" },
    Tool { probe: Probe::File("/usr/include/stdio.h"), package: "libc6-dev" },
    Tool { probe: Probe::Program("python3"), package: "python3" },
    Tool { probe: Probe::PythonModule("ensurepip"), package: "python3-venv" },
    Tool { probe: Probe::File("/etc/ssl/certs/ca-certificates.crt"), package: "ca-certificates" },
];

/// For the tests of hosts.
pub(super) const SSH: &[Tool] = &[Tool { probe: Probe::Program("ssh"), package: "openssh-client" }];

/// For the test of the report's page.
pub(super) const BROWSER: &[Tool] =
    &[Tool { probe: Probe::Program("chromium-headless-shell"), package: "chromium-headless-shell" }];

/// For MPICH's test suite: archives of sources are compressed by xz.
pub(crate) const SUITE: &[Tool] = &[Tool { probe: Probe::Program("xz"), package: "xz-utils" }];

/// For packages of coswitch, and for their test.
pub(crate) const PACKAGING: &[Tool] = &[
    Tool { probe: Probe::Program("dpkg-shlibdeps"), package: "dpkg-dev" },
    Tool { probe: Probe::Program("strip"), package: "binutils" },
    Tool { probe: Probe::Program("zstd"), package: "zstd" },
    Tool { probe: Probe::Program("man"), package: "man-db" },
    Tool { probe: Probe::Program("git"), package: "git" },
];

/// For the loader of a private CRIU.
pub(super) const PATCHELF: &[Tool] = &[Tool { probe: Probe::Program("patchelf"), package: "patchelf" }];

impl Tool {
    fn is_there(&self) -> bool {
        match self.probe {
            Probe::Program(name) => find_program(name).is_some(),
            Probe::File(path) => Path::new(path).exists(),
            Probe::PythonModule(name) => find_python_module(name),
        }
    }
}

/// Installs the packages of missing tools; returns what it did.
pub(crate) fn ensure_tools(tools: &[Tool]) -> Result<String> {
    let mut missing: Vec<&str> =
        tools.iter().filter(|tool| !tool.is_there()).map(|tool| tool.package).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok("all there".to_owned());
    }
    install(&missing)?;
    if let Some(tool) = tools.iter().find(|tool| !tool.is_there()) {
        bail!("package {} is installed, but its tool is still missing", tool.package);
    }
    Ok(format!("installed {}", missing.join(", ")))
}

/// Installs packages; refuses a plan that would upgrade or remove others.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    let plan = plan(packages).or_else(|_| {
        // The lists may be missing or old. A broken foreign source is no error as long as there is a plan.
        command::run(apt_get().arg("update"), LIMIT).ok();
        plan_or_context(packages)
    })?;
    if let Some(change) = changes_of_the_system(&plan).next() {
        bail!("installing {} would change the system ({change}); refused", packages.join(", "));
    }
    command::run(apt_get().args(["install", "-y"]).args(packages), LIMIT)?;
    Ok(())
}

/// Reads the lists of packages anew.
pub(super) fn update() -> Result<String> {
    command::run(apt_get().arg("update"), LIMIT)
}

/// Downloads packages to the current directory.
pub(super) fn download(packages: &[&str]) -> Command {
    let mut download = apt_get();
    download.arg("download").args(packages);
    download
}

/// The version that the distribution would install, if it has the package.
pub(super) fn candidate(package: &str) -> Option<String> {
    let text = command::run(Command::new("apt-cache").args(["policy", package]), LIMIT).ok()?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (line != "(none)").then(|| line.to_owned())
}

/// The first program of that name on the search path.
pub(super) fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// The distribution's Python, even where another one comes first on the search path.
pub(super) fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

fn find_python_module(name: &str) -> bool {
    let code = format!("import {name}");
    command::run(Command::new(python()).args(["-S", "-c", &code]), Duration::from_secs(20)).is_ok()
}

fn plan(packages: &[&str]) -> Result<String> {
    command::run(apt_get().args(["install", "--simulate"]).args(packages), LIMIT)
}

fn plan_or_context(packages: &[&str]) -> Result<String> {
    plan(packages).with_context(|| format!("the distribution cannot install {}", packages.join(", ")))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "APT::Install-Recommends=0"]);
    command
}

/// Lines of a simulated run that replace (`Inst name [old] (new)`) or remove something.
fn changes_of_the_system(plan: &str) -> impl Iterator<Item = &str> {
    plan.lines().filter(|line| {
        let mut words = line.split(' ');
        match words.next() {
            Some("Remv") => true,
            Some("Inst") => words.nth(1).is_some_and(|word| word.starts_with('[')),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_only_adds_changes_nothing() {
        let plan = "Inst patchelf (0.14.3-1+b1 Debian:12.11/oldstable [amd64])\nConf patchelf (0.14.3)\n";
        assert_eq!(changes_of_the_system(plan).count(), 0);
    }

    #[test]
    fn upgrades_and_removals_are_seen_in_a_plan() {
        let plan = "Remv cron [3.0]\nInst libc6 [2.36-9] (2.41-1 Debian:13 [amd64])\nInst criu (4.1.1)\n";
        assert_eq!(changes_of_the_system(plan).count(), 2);
    }
}
