//! Writes the journal of a run, on a thread of its own: a disk that is slow or full delays no heartbeat.
//!
//! ```text
//!   engine ── tell ──▶ waiting ── room ──▶ queue (1,024 events) ──▶ thread ──▶ file
//! ```
//! Nothing is left out. While events wait, the engine takes no news of jobs, so that `waiting` stays short.
//! On a disk without room they wait until it has some: jobs run on, and nothing of what happened is lost.
//! The journal of a cluster that stays waits for any disk that fails; a run ends with its error.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, ErrorKind, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use coswitch_ckpt::private;
use coswitch_report::journal::{Event, JournalError, RunEvent, record};
use tokio::sync::mpsc::{Sender, error::TrySendError};
use tracing::warn;

use crate::compaction::Compaction;

const QUEUE: usize = 1024;
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Until it is tried again to write to a disk without room.
const ROOM_EVERY: Duration = Duration::from_millis(250);

/// Appends events to a journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    queue: Sender<RunEvent>,
    /// Events for which the queue had no room.
    waiting: VecDeque<RunEvent>,
    /// The thread's last word.
    written: Receiver<Result<(), JournalError>>,
    /// No more events come: what finds no room now is lost.
    is_ending: Arc<AtomicBool>,
}

impl Journal {
    /// Creates the journal at `path`, where nothing may be.
    ///
    /// # Errors
    /// Where the file exists or cannot be created, or the thread not be started.
    pub fn create(path: &Path, compaction: Option<Compaction>) -> Result<Self, JournalError> {
        let io = |cause| JournalError::Io { path: path.into(), cause };
        let file = private::create(path).map_err(io)?;
        Self::on(file, path, 0, compaction).map_err(io)
    }

    /// Goes on with the journal at `path`. A last line that was cut short is removed.
    ///
    /// # Errors
    /// Where the file cannot be read or written, or the thread not be started.
    pub fn append(path: &Path, compaction: Option<Compaction>) -> Result<Self, JournalError> {
        let io = |cause| JournalError::Io { path: path.into(), cause };
        let (mut file, length) = cut(path).map_err(io)?;
        file.seek(SeekFrom::End(0)).map_err(io)?;
        Self::on(file, path, length, compaction).map_err(io)
    }

    fn on(file: File, path: &Path, length: u64, compaction: Option<Compaction>) -> io::Result<Self> {
        let (queue, mut events) = tokio::sync::mpsc::channel::<RunEvent>(QUEUE);
        let (tell, written) = channel();
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&is_ending);
        let mut writer = Writer { path: path.into(), file, length, compaction, is_ending: ending };
        thread::Builder::new().name("journal".into()).spawn(move || {
            writer.compact_large();
            let mut outcome = Ok(());
            let mut ends = false;
            while let Some(event) = events.blocking_recv() {
                ends |= matches!(event.kind, Event::JobFinished { .. });
                // After the first failure nothing is written: the lines would have a gap.
                if outcome.is_err() {
                    continue;
                }
                outcome = writer.append(&event);
                // After a power cut, a job that has ended must not run again.
                if ends && events.is_empty() {
                    outcome = outcome.and_then(|()| writer.sync());
                    ends = false;
                }
                if let Err(error) = &outcome {
                    warn!(%error, "nothing is written to the journal any more");
                }
            }
            // The file is closed when that is known.
            drop(writer);
            let _ = tell.send(outcome);
        })?;
        Ok(Self { path: path.into(), queue, waiting: VecDeque::new(), written, is_ending })
    }

    /// Takes an event; never blocks.
    pub fn tell(&mut self, event: RunEvent) {
        self.waiting.push_back(event);
        self.pass_on();
    }

    fn pass_on(&mut self) {
        while let Some(event) = self.waiting.pop_front() {
            if let Err(TrySendError::Full(event)) = self.queue.try_send(event) {
                return self.waiting.push_front(event);
            }
        }
    }

    /// Whether no event waits.
    pub fn has_room(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Waits until no event waits. May be given up and called again.
    pub async fn room(&mut self) {
        while !self.waiting.is_empty() {
            let Ok(permit) = self.queue.reserve().await else { return self.waiting.clear() };
            if let Some(event) = self.waiting.pop_front() {
                permit.send(event);
            }
        }
    }

    /// Waits until everything is in the file, for at most `limit`.
    ///
    /// # Errors
    /// Where the disk is full or broken, or too slow.
    pub fn finish(mut self, limit: Duration) -> Result<(), JournalError> {
        let deadline = Instant::now() + limit;
        while !self.waiting.is_empty() && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
            self.pass_on();
        }
        self.is_ending.store(true, Ordering::Relaxed);
        let is_passed_on = self.waiting.is_empty();
        drop(self.queue);
        let written = self.written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let late = || JournalError::Late { path: self.path, limit };
        written.ok().filter(|_| is_passed_on).ok_or_else(late)?
    }
}

/// Removes a last line that was cut short; the file, and its length.
///
/// # Errors
/// Where it cannot be read or written.
pub(crate) fn cut(path: &Path) -> io::Result<(File, u64)> {
    let text = private::read(path)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last as u64 + 1);
    let file = private::open_to_write(path)?;
    file.set_len(whole)?;
    Ok((file, whole))
}

struct Writer {
    path: PathBuf,
    file: File,
    length: u64,
    compaction: Option<Compaction>,
    is_ending: Arc<AtomicBool>,
}

impl Writer {
    /// Appends `event` in one write, so that a crash leaves whole lines and at most one part of a line.
    fn append(&mut self, event: &RunEvent) -> Result<(), JournalError> {
        let line = record::write(event);
        self.insist(|writer| writer.file.write_all(&line))?;
        self.length += line.len() as u64;
        if let Some(compaction) = &mut self.compaction {
            compaction.take(event);
        }
        self.compact_large();
        Ok(())
    }

    /// Does so with the file; again, where it may succeed later.
    fn insist(&mut self, act: impl Fn(&mut Self) -> io::Result<()>) -> Result<(), JournalError> {
        let mut done = act(self);
        let mut is_told = false;
        loop {
            let Err(error) = done else { return Ok(()) };
            let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
            let waits = is_full || self.compaction.as_ref().is_some_and(Compaction::is_of_cluster);
            if !waits || self.is_ending.load(Ordering::Relaxed) {
                return Err(JournalError::Io { path: self.path.clone(), cause: error });
            }
            if !std::mem::replace(&mut is_told, true) {
                let path = self.path.display();
                warn!(%path, %error, "the journal cannot be written; it waits for its disk, and jobs run on");
            }
            thread::sleep(ROOM_EVERY);
            done = self.go_back(is_full).and_then(|()| act(self));
        }
    }

    /// To the end of the last line that is whole: part of another may have found room.
    fn go_back(&mut self, is_full: bool) -> io::Result<()> {
        if !is_full {
            // A file of another machine may have to be opened again.
            self.file = private::open_to_write(&self.path)?;
        }
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::End(0)).map(drop)
    }

    fn compact_large(&mut self) {
        let compacted = self.compaction.as_mut().and_then(|all| all.compact_large(&self.file, self.length));
        if let Some((file, length)) = compacted {
            (self.file, self.length) = (file, length);
        }
    }

    /// Waits until the disk has what was appended.
    fn sync(&mut self) -> Result<(), JournalError> {
        self.insist(|writer| writer.file.sync_data())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use coswitch_policies::{JobId, Placement, SimTime, SlotId};
    use coswitch_report::journal::{JobOutcome, read};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn write(path: &Path, events: &[RunEvent]) {
        let mut journal = Journal::create(path, None).unwrap();
        events.iter().for_each(|event| journal.tell(event.clone()));
        journal.finish(LIMIT).unwrap();
    }

    fn warnings(count: u64) -> impl Iterator<Item = RunEvent> {
        (0..count).map(|at| RunEvent { at: SimTime(at), kind: Event::Warning { text: "x".repeat(100) } })
    }

    #[test]
    fn events_are_read_back_in_the_order_of_writing() {
        let kinds = [
            Event::JobLaunched { job: JobId(1), placement: Placement::from_shares(&[1, 1]) },
            Event::SlotStarted { slot: SlotId(0), jobs: vec![JobId(1)], ends: Some(SimTime(9)) },
            Event::TurnsForeseen { turns: vec![(JobId(1), SimTime(9))] },
            Event::JobFinished { job: JobId(1), outcome: JobOutcome::Exit(3), last_output: "oh\n".into() },
        ];
        let events: Vec<_> = (0..).zip(kinds).map(|(at, kind)| RunEvent { at: SimTime(at), kind }).collect();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        write(&path, &events);
        assert!(Journal::create(&path, None).is_err(), "a journal is never continued by another run");
        assert_eq!(read(&path).unwrap(), events);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(r#"{"at":0,"kind":"job-launched","job":1,"placement":"#), "{text}");
    }

    /// A journal on a pipe, which takes 64 KiB until it is read, and the pipe's other end.
    fn on_a_pipe() -> (Journal, File) {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        (Journal::on(writer.into(), Path::new("pipe"), 0, None).unwrap(), reader.into())
    }

    #[test]
    fn a_blocked_disk_blocks_no_teller_and_loses_no_event() {
        const COUNT: u64 = 4000;
        let (mut journal, mut disk) = on_a_pipe();
        warnings(COUNT).for_each(|event| journal.tell(event));
        assert!(!journal.has_room());
        let lines = thread::spawn(move || {
            let mut text = String::new();
            disk.read_to_string(&mut text).unwrap();
            text.lines().count() as u64
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(journal.room());
        assert!(journal.has_room());
        journal.finish(LIMIT).unwrap();
        assert_eq!(lines.join().unwrap(), COUNT);
    }

    #[test]
    fn a_disk_that_stays_blocked_is_reported() {
        let (mut journal, _disk) = on_a_pipe();
        warnings(4000).for_each(|event| journal.tell(event));
        let outcome = journal.finish(Duration::from_millis(100));
        assert!(matches!(outcome, Err(JournalError::Late { .. })), "{outcome:?}");
    }

    #[test]
    fn events_wait_for_a_full_disk_and_none_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let mount =
            |flags, data| nix::mount::mount(Some("tmpfs"), directory.path(), Some("tmpfs"), flags, data);
        mount(nix::mount::MsFlags::empty(), Some("size=256k")).unwrap();
        let (path, filler) = (directory.path().join("journal"), directory.path().join("filler"));
        let events: Vec<_> = warnings(500).collect();
        let mut journal = Journal::create(&path, None).unwrap();
        // Room for some lines, and for part of one.
        std::fs::write(&filler, vec![0; 220 << 10]).unwrap();
        events.iter().for_each(|event| journal.tell(event.clone()));
        while std::fs::metadata(&path).unwrap().len() < 20_000 {
            thread::sleep(LOOK_EVERY);
        }
        thread::sleep(2 * ROOM_EVERY);
        std::fs::remove_file(&filler).unwrap();
        while std::fs::metadata(&path).unwrap().len() < 60_000 {
            thread::sleep(LOOK_EVERY);
        }
        journal.finish(LIMIT).unwrap();
        let read_back = read(&path);
        nix::mount::umount(directory.path()).unwrap();
        assert_eq!(read_back.unwrap(), events);
    }

    #[test]
    fn a_full_disk_is_reported_at_the_end() {
        let path = Path::new("/dev/full");
        let mut journal = Journal::on(File::create(path).unwrap(), path, 0, None).unwrap();
        warnings(2000).for_each(|event| journal.tell(event));
        assert!(matches!(journal.finish(LIMIT), Err(JournalError::Io { .. })));
    }
}
