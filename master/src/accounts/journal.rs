//! The accounts that a journal and its archives have.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use coswitch_ckpt::private;
use coswitch_policies::JobId;
use coswitch_report::{
    Folder, JobAccount,
    journal::{Event, FILE_NAME, JournalError, RunEvent, archive, each, record},
};

use super::database::{AccountsError, Database};

/// Brings the database of a directory up to what its journal knows; how many jobs that is. No master may have
/// the directory.
///
/// # Errors
/// Where the journal cannot be read, or the database not be written.
pub fn rebuild(directory: &Path) -> Result<usize, AccountsError> {
    let mut database = Database::open(directory)?;
    let accounts = accounts(directory)?;
    database.write(&accounts)?;
    database.close();
    Ok(accounts.len())
}

/// The accounts of all jobs that have ended, by the journal of a directory and its archives, where there are
/// any.
///
/// # Errors
/// Where a file cannot be read, or a line that sums up all that was before.
pub(super) fn accounts(directory: &Path) -> Result<Vec<JobAccount>, JournalError> {
    let path = directory.join(FILE_NAME);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let (mut folder, mut accounts) = (Folder::default(), BTreeMap::new());
    for file in files(&path) {
        each(&file, |event| on_event(&mut folder, &mut accounts, &event))?;
    }
    accounts.extend(folder.accounts().map(|account| (account.job, account)));
    Ok(accounts.into_values().collect())
}

/// A sum forgets jobs that the events before it have had.
fn on_event(folder: &mut Folder, accounts: &mut BTreeMap<JobId, JobAccount>, event: &RunEvent) {
    folder.on_event(event.at, &event.kind);
    match &event.kind {
        Event::JobFinished { job, .. } => {
            accounts.extend(folder.account(*job).map(|account| (*job, account)));
        }
        Event::Summed { .. } => {
            accounts.extend(folder.accounts().map(|account| (account.job, account)));
        }
        _ => {}
    }
}

/// The archives as far back as there are any, the oldest first, and the journal itself.
fn files(path: &Path) -> Vec<PathBuf> {
    let mut files = vec![path.to_path_buf()];
    while let Some(before) = files.last().and_then(|file| archive_before(file)) {
        let before = archive(path, before);
        if !before.exists() || files.contains(&before) {
            break;
        }
        files.push(before);
    }
    files.reverse();
    files
}

/// The archive that a file goes on from, by its second line.
fn archive_before(file: &Path) -> Option<u32> {
    let mut lines = BufReader::new(private::open(file).ok()?).split(b'\n').skip(1);
    match record::read::<RunEvent>(&lines.next()?.ok()?).ok()?.kind {
        Event::Summed { archive, .. } => Some(archive),
        _ => None,
    }
}
