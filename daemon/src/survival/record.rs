//! The record of a part, in the node's directory of notes: a file of the owner alone, replaced by rename.
//!
//! ```text
//!   u64 length │ JSON │ the channel states
//! ```

use std::{fs, io, path::Path};

use coswitch_ckpt::private;
use coswitch_policies::JobId;
use serde::{Deserialize, Serialize};

use super::{PART, path};
use crate::{
    handover::{Compatible, HandedPart, compatible},
    node::notes_dir,
    protocol::RankEnd,
};

/// A part as its daemon knew it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Of the daemon.
    by: Compatible,
    /// Since when the machine runs.
    boot: String,
    pub(crate) part: HandedPart,
    /// How far the daemon has read what the launcher has sent, and acted upon it.
    pub(crate) read_to: u64,
    /// The launcher's last message was among that.
    pub(crate) all_exited: bool,
    pub(crate) failed_rank: Option<RankEnd>,
}

impl Record {
    pub(crate) fn of(part: HandedPart, read_to: u64, all_exited: bool, failed_rank: Option<RankEnd>) -> Self {
        Self { by: compatible(), boot: boot(), part, read_to, all_exited, failed_rank }
    }

    /// Its text, by which two records are compared.
    pub(crate) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Writes the record with this text.
    pub(crate) fn write(name: &str, job: JobId, text: &[u8], channels: &[u8]) -> io::Result<()> {
        let length = (text.len() as u64).to_le_bytes();
        let (path, new) = (path(name, job), path(name, job).with_extension("new"));
        io::Write::write_all(&mut private::overwrite(&new)?, &[&length, text, channels].concat())?;
        fs::rename(new, path)
    }

    /// Also succeeds where there is none.
    pub(crate) fn remove(name: &str, job: JobId) -> io::Result<()> {
        match fs::remove_file(path(name, job)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Those of a node that can be read.
    pub(super) fn all(name: &str) -> Vec<Self> {
        let dir = notes_dir(name);
        let names = names(&dir).into_iter().filter(|file| !file.ends_with(".new"));
        names.filter_map(|file| Self::read(&dir.join(file)).ok()).collect()
    }

    pub(super) fn remove_others(name: &str, keep: &[JobId]) {
        let dir = notes_dir(name);
        let keep: Vec<String> = keep.iter().map(|job| format!("{PART}{job}")).collect();
        for file in names(&dir).into_iter().filter(|file| !keep.contains(file)) {
            // One that stays is judged by the next daemon, as this one was.
            let _ = fs::remove_file(dir.join(file));
        }
    }

    fn read(path: &Path) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        if !private::is_own(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let bytes = private::read(path)?;
        let (length, rest) = bytes.split_first_chunk().ok_or_else(invalid)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| invalid())?;
        let (text, channels) = rest.split_at_checked(length).ok_or_else(invalid)?;
        let mut record: Self = serde_json::from_slice(text)?;
        record.part.channels = channels.to_vec();
        Ok(record)
    }

    pub(super) fn is_readable(&self) -> Result<(), &'static str> {
        if self.boot != boot() {
            return Err("the machine has started since");
        }
        if self.by != compatible() { Err("another version of coswitch has left it") } else { Ok(()) }
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(PART)).collect()
}

/// Empty where the kernel does not say: process ids and start times are then all that there is.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
