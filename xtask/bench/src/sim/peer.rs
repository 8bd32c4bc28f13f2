//! AccaSim (Galleguillos et al.), from the Python package index, in a virtual environment beside the build.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::program::{bounded, done};

const PACKAGE: &str = "accasim==1.1.3";
const PROGRAM: &str = include_str!("peer.py");
/// Limits in seconds of one step of its installation and of one log. The Paragon's takes it about 14.
const INSTALL_MAX: u32 = 120;
const RUN_MAX: u32 = 180;

/// An installed AccaSim.
pub(super) struct Peer {
    python: PathBuf,
}

#[derive(Deserialize)]
struct Took {
    seconds: f64,
}

impl Peer {
    /// Installs it where it is missing.
    pub(super) fn install() -> Result<Self> {
        let own = env::current_exe().context("failed to find this program")?;
        let home = own.with_file_name("accasim-1.1.3");
        let python = home.join("bin/python");
        let works = |python: &Path| {
            let tried = Command::new(python).args(["-c", "import numpy, psutil, sortedcontainers"]).output();
            tried.is_ok_and(|tried| tried.status.success()) && home.join("complete").exists()
        };
        if !works(&python) {
            eprintln!("installing {PACKAGE} ...");
            let mut venv = bounded(INSTALL_MAX, Path::new("python3"));
            done(venv.args(["-m", "venv", "--clear"]).arg(&home).output()?, INSTALL_MAX)?;
            let mut pip = bounded(INSTALL_MAX, &python);
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]);
            done(pip.output()?, INSTALL_MAX)?;
            fs::write(home.join("complete"), PACKAGE)?;
        }
        Ok(Self { python })
    }

    /// The jobs of the log that it did, and the seconds of processor time, without the start of Python.
    pub(super) fn run(&self, log: &str, nodes: u32) -> Result<(u64, f64)> {
        let directory = tempfile::tempdir()?;
        let (file, program) = (directory.path().join("log.swf"), directory.path().join("peer.py"));
        fs::write(&file, log)?;
        fs::write(&program, PROGRAM)?;
        let mut python = bounded(RUN_MAX, &self.python);
        python
            .arg(&program)
            .arg(&file)
            .arg(nodes.to_string())
            .arg(directory.path())
            .current_dir(directory.path());
        let output = done(python.output()?, RUN_MAX)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let took: Took = text
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str(line).ok())
            .context("AccaSim printed no time")?;
        let told = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        let jobs = told.lines().find_map(|line| line.split_once("Total jobs: ")?.1.trim().parse().ok());
        Ok((jobs.context("AccaSim printed no number of jobs")?, took.seconds))
    }
}
