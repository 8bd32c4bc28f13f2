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
    node_clock::Boot,
    protocol::RankEnd,
};

/// A part as its daemon knew it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Of the daemon.
    by: Compatible,
    /// Since when the machine runs.
    boot: Boot,
    pub(crate) part: HandedPart,
    /// How far the daemon has read what the launcher has sent, and acted upon it.
    pub(crate) read_to: u64,
    /// The launcher's last message was among that.
    pub(crate) all_exited: bool,
    pub(crate) failed_rank: Option<RankEnd>,
}

impl Record {
    pub(crate) fn of(part: HandedPart, read_to: u64, all_exited: bool, failed_rank: Option<RankEnd>) -> Self {
        Self { by: compatible(), boot: Boot::own(), part, read_to, all_exited, failed_rank }
    }

    /// Its text, by which two records are compared.
    pub(crate) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Writes the record with this text.
    pub(crate) fn write(name: &str, job: JobId, text: &[u8], channels: &[u8]) -> io::Result<()> {
        Self::write_to(&path(name, job), text, channels)
    }

    fn write_to(path: &Path, text: &[u8], channels: &[u8]) -> io::Result<()> {
        let length = (text.len() as u64).to_le_bytes();
        let new = path.with_extension("new");
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
        if self.boot != Boot::own() {
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, os::unix::fs::PermissionsExt};

    use coswitch_policies::{Bytes, Epoch};

    use super::*;
    use crate::{handover::HandedState, process::Process};

    fn record() -> Record {
        let launch = r#"{"name":"a","placement":[0],"command":["a"],"env":[],"cwd":"/","umask":18,
            "output":"/","wait":"spin","park":"Criu","life":7}"#;
        let part = HandedPart {
            job: JobId(3),
            launch: serde_json::from_str(launch).unwrap(),
            state: HandedState::Running { root: Process { pid: 7, started: 8 } },
            epoch: Epoch(2),
            cuts: Epoch(2),
            flushed: None,
            reached: None,
            fences: Vec::new(),
            life: 7,
            launcher: vec![1],
            image_bytes: Bytes(9),
            needed: BTreeSet::from([2]),
            channels: Vec::new(),
            channel_bytes: 0,
        };
        Record::of(part, 128, false, None)
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part-job-3");
        for channels in [&b"in flight"[..], b""] {
            Record::write_to(&path, &record().text(), channels).unwrap();
            let read = Record::read(&path).unwrap();
            assert_eq!((read.text(), &read.part.channels[..]), (record().text(), channels));
            assert_eq!((read.read_to, read.is_readable()), (128, Ok(())));
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(dir.path()), ["part-job-3"]);
    }

    #[test]
    fn one_that_is_cut_or_of_another_boot_or_build_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part-job-3");
        let text = record().text();
        Record::write_to(&path, &text, b"").unwrap();
        let whole = fs::read(&path).unwrap();
        for length in [0, 7, 8, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(Record::read(&path).is_err(), "{length} of {} bytes", whole.len());
        }
        assert!(Record { boot: Boot::default(), ..record() }.is_readable().is_err());
        let by = Compatible { version: "0.0.0".into(), ..compatible() };
        assert!(Record { by, ..record() }.is_readable().is_err());
    }
}
