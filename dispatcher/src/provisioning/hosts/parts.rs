//! The parts of coswitch on a host: those of this build, found there by their hash, or copied.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::{Host, Installed, ProvisioningError, ssh};
use crate::provisioning::STORE;

/// The programs of this build of coswitch, and their directory on every host. coswitch never removes the
/// directory: a daemon of a cluster that stays may be using the programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Parts {
    pub(super) directory: PathBuf,
    /// On this machine.
    files: [PathBuf; 4],
}

impl Parts {
    pub(super) fn of(installed: &Installed) -> io::Result<Self> {
        let files =
            [&installed.daemon, &installed.launcher, &installed.driver, &installed.preload].map(Clone::clone);
        let mut hash = Xxh3::new();
        files.iter().try_for_each(|file| fs::read(file).map(|bytes| hash.update(&bytes)))?;
        let directory = Path::new(STORE).join("parts").join(format!("{:032x}", hash.digest128()));
        Ok(Self { directory, files })
    }

    /// The part on a host that lies here as `file`.
    pub(super) fn on_host(&self, file: &Path) -> PathBuf {
        self.directory.join(file.file_name().unwrap_or_default())
    }

    /// Copies the parts to the host, if it has not got them.
    pub(super) fn install_where_missing(&self, host: &Host) -> Result<(), ProvisioningError> {
        let script = format!("[ -d {} ]", ssh::quote(&self.directory.display().to_string()));
        match ssh::run(host, "look for the programs of coswitch", &script, Stdio::null())? {
            answer if answer.status.success() => Ok(()),
            _ => self.install(host),
        }
    }

    /// Copies the parts to the host, unless they are there. Others may do the same at the same time: a
    /// directory has its name only when it is complete.
    pub(super) fn install(&self, host: &Host) -> Result<(), ProvisioningError> {
        const ACT: &str = "copy the programs of coswitch";
        let failed = |said| ProvisioningError::Host { act: ACT, host: host.name.clone(), said };
        let tar = || {
            let mut tar = Command::new("tar");
            tar.args(["--create", "--dereference", "--file", "-"]);
            for file in &self.files {
                tar.arg("--directory").arg(file.parent().unwrap_or(Path::new("/")));
                tar.arg(file.file_name().unwrap_or_default());
            }
            tar.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
        };
        let mut tar = tar().map_err(|error| failed(format!("tar cannot be run: {error}")))?;
        let archive = tar.stdout.take().expect("piped");
        let copied = ssh::run(host, ACT, &self.script(), archive.into());
        let packed = tar.wait().map_err(|error| failed(error.to_string()))?;
        match copied? {
            answer if !answer.status.success() => Err(failed(answer.said)),
            _ if !packed.success() => Err(failed(format!("tar has failed: {packed}"))),
            _ => Ok(()),
        }
    }

    /// Ranks of ordinary users load the driver from there. What else lies in that directory is closed by
    /// itself.
    fn script(&self) -> String {
        let (store, parts) = (ssh::quote(STORE), ssh::quote(&format!("{STORE}/parts")));
        let directory = ssh::quote(&self.directory.display().to_string());
        format!(
            "set -e; umask 022; [ -d {store} ] || mkdir -m 711 {store}; chmod go+x {store}; \
             mkdir -p {parts}; chmod go+rx {parts}; \
             new=$(mktemp -d -p {parts}); trap 'rm -rf \"$new\"' EXIT; \
             tar --extract --no-same-owner --file - --directory \"$new\"; \
             chmod 755 \"$new\"; [ -d {directory} ] || mv -T \"$new\" {directory}"
        )
    }
}
