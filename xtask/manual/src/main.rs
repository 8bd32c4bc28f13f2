//! `coswitch-manual DIRECTORY`: writes man pages and completions of shells there, as they lie in `share`.
//!
//! Pages of commands and completions come from the definitions by which `coswitch` parses its command line,
//! the page of the run file from the schema that `coswitch schema` prints. It is a program of its own, so
//! that `coswitch` does not carry what is needed once in a release.

mod run_file;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use clap_complete::Shell;
use coswitch::cli::Arguments;

/// Where each shell looks on a Debian-like system.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/coswitch"),
    (Shell::Zsh, "zsh/vendor-completions/_coswitch"),
    (Shell::Fish, "fish/vendor_completions.d/coswitch.fish"),
];
/// Programs that nobody calls by hand.
const PAGES: [(&str, &str); 2] = [
    ("coswitchd.8", include_str!("../pages/coswitchd.8")),
    ("coswitch-launcher.8", include_str!("../pages/coswitch-launcher.8")),
];
const SCHEMA: &str = include_str!("../../../master/coswitch.schema.json");
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [share] = &arguments[..] else { bail!("usage: coswitch-manual DIRECTORY") };
    write(share).with_context(|| format!("cannot write the manual to {}", share.display()))
}

fn write(share: &Path) -> Result<()> {
    let commands = made(share.join("man/man1"))?;
    clap_mangen::generate_to(Arguments::command(), commands)?;
    for (shell, place) in COMPLETIONS {
        let path = share.join(place);
        made(path.parent().context("a completion lies in a directory")?.to_path_buf())?;
        clap_complete::generate(shell, &mut Arguments::command(), "coswitch", &mut File::create(path)?);
    }
    let schema = serde_json::from_str(SCHEMA).context("the schema of run files is no JSON")?;
    let mut page = File::create(made(share.join("man/man5"))?.join("coswitch.yaml.5"))?;
    run_file::page(&schema, VERSION).to_writer(&mut page)?;
    let programs = made(share.join("man/man8"))?;
    for (name, text) in PAGES {
        fs::write(programs.join(name), text.replace("@VERSION@", VERSION))?;
    }
    Ok(())
}

fn made(directory: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&directory)?;
    Ok(directory)
}
