//! Keeps the journal of a cluster that stays small: when it has grown, a new one takes its place, which
//! begins with what all events so far come to.
//!
//! ```text
//!   journal.jsonl        run-started, summed (archive 7), later events
//!   journal.jsonl.7      run-started, summed (archive 6), the events before
//!   journal.jsonl.6      …
//! ```
//! The archives are for reports and replays. A new master needs none of them.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use coswitch_report::{
    ENDED_KEPT, Folder, Known,
    journal::{Event, JournalError, RunEvent, VERSION, archive, each, record},
};

use crate::{accounts::Told, journal::cut, replace};

/// So many archives are kept.
const ARCHIVES: u32 = 3;

/// What the events of a journal come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// `run-started`, with which each journal begins.
    start: Option<RunEvent>,
    /// The number of the last archive.
    archive: u32,
    pub report: Folder,
    pub known: Known,
}

impl Sums {
    /// Of a journal, and the number of its lines that cannot be read.
    ///
    /// # Errors
    /// As [`each`].
    pub fn read(path: &Path) -> Result<(Self, usize), JournalError> {
        let mut sums = Self::default();
        let damaged = each(path, |event| sums.on_event(&event))?;
        Ok((sums, damaged))
    }

    /// The same of a journal that a new master goes on with: without a last line that was cut short, also
    /// where only its end is missing.
    ///
    /// # Errors
    /// As [`each`].
    pub fn take_up(path: &Path) -> Result<(Self, usize), JournalError> {
        cut(path).map_err(|cause| JournalError::Io { path: path.into(), cause })?;
        Self::read(path)
    }

    pub fn on_event(&mut self, event: &RunEvent) {
        match &event.kind {
            Event::RunStarted { .. } => self.start = Some(event.clone()),
            Event::Summed { archive, .. } => self.archive = *archive,
            _ => {}
        }
        self.report.on_event(event.at, &event.kind);
        self.known.on_event(event);
    }

    /// The beginning of a journal that stands for all events so far, which the archive `archive` has.
    fn write(&self, archive: u32) -> Option<Vec<u8>> {
        let mut start = self.start.clone()?;
        if let Event::RunStarted { version, .. } = &mut start.kind {
            *version = VERSION;
        }
        let (report, known) = (Box::new(self.report.clone()), Box::new(self.known.clone()));
        let summed = RunEvent { at: self.known.last, kind: Event::Summed { archive, report, known } };
        Some([record::write(&start), record::write(&summed)].concat())
    }
}

/// Compacts a journal as it grows.
pub struct Compaction {
    path: PathBuf,
    /// A journal that is larger is compacted.
    max: u64,
    /// The size at which that is tried next.
    due: u64,
    sums: Sums,
    /// Where the accounts of jobs go that have ended.
    accounts: Option<Told>,
    /// Hears what is known whenever the journal was compacted.
    on_compacted: Box<dyn FnMut(&Known) + Send>,
}

impl Compaction {
    pub fn new(path: &Path, max: u64, sums: Sums, on_compacted: impl FnMut(&Known) + Send + 'static) -> Self {
        Self { path: path.into(), max, due: max, sums, accounts: None, on_compacted: Box::new(on_compacted) }
    }

    /// Of a journal that stays as it is, and is only followed.
    pub fn never(path: &Path, sums: Sums) -> Self {
        Self::new(path, u64::MAX, sums, |_| ())
    }

    /// Tells the accounts of all jobs that have ended, and from now on of those that end.
    #[must_use]
    pub fn telling(self, accounts: Told) -> Self {
        accounts.tell(self.sums.report.accounts());
        Self { accounts: Some(accounts), ..self }
    }

    /// Whether the journal is that of a cluster that stays.
    pub(crate) const fn is_of_cluster(&self) -> bool {
        self.max != u64::MAX
    }

    /// The journal has one more event.
    pub(crate) fn take(&mut self, event: &RunEvent) {
        self.sums.on_event(event);
        let (Some(accounts), report) = (&self.accounts, &self.sums.report) else { return };
        match event.kind {
            Event::JobFinished { job, .. } => accounts.tell(report.account(job)),
            // The others have been told.
            Event::RunEnded { .. } => {
                accounts.tell(report.accounts().filter(|account| account.outcome.is_none()));
            }
            _ => {}
        }
    }

    /// The file in which a journal of this length goes on from now on, and its length, where that is another
    /// one.
    pub(crate) fn compact_large(&mut self, file: &File, length: u64) -> Option<(File, u64)> {
        if length <= self.due {
            return None;
        }
        match self.compact(file) {
            Ok((file, length)) => {
                // Else a cluster of many jobs would do little else.
                self.due = self.max.max(2 * length);
                (self.on_compacted)(&self.sums.known);
                Some((file, length))
            }
            Err(error) => {
                tracing::warn!(%error, "the journal could not be compacted, and grows on");
                self.due = length + self.max.max(length / 2);
                None
            }
        }
    }

    fn compact(&mut self, file: &File) -> io::Result<(File, u64)> {
        self.sums.report.sum_up(ENDED_KEPT);
        self.sums.known.sum_up(ENDED_KEPT);
        let unwritten = self.accounts.as_ref().map(Told::waiting).unwrap_or_default();
        self.sums.report.keep_accounts(|job| unwritten.contains(&job));
        let number = self.sums.archive + 1;
        let text = self.sums.write(number).ok_or_else(|| io::Error::other("it has no beginning"))?;
        // What becomes an archive is whole.
        file.sync_data()?;
        let new = replace::prepare(&self.path, &text)?;
        let replaced = STEPS.iter().try_for_each(|step| step(&self.path, number));
        if let Err(error) = replaced {
            let _ = replace::remove(&replace::beside(&self.path));
            return Err(error);
        }
        self.sums.archive = number;
        if let Some(old) = number.checked_sub(ARCHIVES) {
            let _ = replace::remove(&archive(&self.path, old));
        }
        Ok((new, text.len() as u64))
    }
}

/// What is done when the new journal is on the disk, with the number of the archive that the old one
/// becomes. Until the last step the old one counts.
const STEPS: [fn(&Path, u32) -> io::Result<()>; 4] = [
    // A master may have died after the second step: then this is the journal itself.
    |path, number| replace::remove(&archive(path, number)),
    |path, number| fs::hard_link(path, archive(path, number)),
    |path, _| replace::sync_directory(path),
    |path, _| replace::put_in_place(path),
];

/// The events, of which the first `count` are summed up.
#[cfg(test)]
pub(crate) fn compacted(events: &[RunEvent], count: usize) -> Vec<RunEvent> {
    let mut sums = Sums::default();
    events[..count].iter().for_each(|event| sums.on_event(event));
    sums.report.sum_up(ENDED_KEPT);
    sums.known.sum_up(ENDED_KEPT);
    let Some(text) = sums.write(1) else { return events.to_vec() };
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let summed = lines.map(|line| record::read(line).expect("a line that was just written"));
    summed.chain(events[count..].iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        io::Write,
        time::{Duration, Instant},
    };

    use coswitch_policies::{Bytes, Capacity, JobId, NodeId, Placement, Policy, SimTime};
    use coswitch_report::{
        fold,
        journal::{FILE_NAME, JobMemory, JobOutcome, read, salvage},
    };

    use super::*;
    use crate::{
        api::Accepted,
        config::Job,
        journal::Journal,
        past::{JOBS, JobFile, Past, read_jobs, tests::accepted},
    };

    /// So many jobs, one after the other.
    fn events(jobs: u32) -> Vec<RunEvent> {
        let started = Event::RunStarted {
            version: VERSION,
            run: "r".into(),
            name: "n".into(),
            policy: Policy::Gang,
            nodes: 1,
            capacity: Capacity::OfAll(Bytes::mib(1)),
            quantum: Duration::from_secs(1),
            scheduler: None,
            local: None,
        };
        let of_job = |job: u32| {
            let (job, memory, outcome) = (JobId(job), Bytes::mib(1), JobOutcome::Exit(0));
            [
                Event::JobSubmitted { job, name: job.to_string(), ranks: 1, memory, alone: None },
                Event::JobLaunched { job, placement: Placement::from_shares(&[1]) },
                Event::JobRunning { job },
                Event::JobResident { job, node: NodeId(0), resident: memory },
                Event::Warning { text: format!("{job} is watched") },
                Event::JobFinished { job, outcome, last_output: String::new() },
            ]
        };
        let kinds = std::iter::once(started).chain((0..jobs).flat_map(of_job));
        (0..).zip(kinds).map(|(ms, kind)| RunEvent { at: SimTime(ms * 1_000_000), kind }).collect()
    }

    fn lines(events: &[RunEvent]) -> Vec<u8> {
        events.iter().flat_map(record::write).collect()
    }

    /// A new master reads the journal, which has the first `known` events, and goes on to the last one.
    fn go_on(path: &Path, events: &[RunEvent], known: usize) {
        let (sums, damaged) = Sums::take_up(path).unwrap();
        assert_eq!(damaged, 0);
        assert_eq!(sums.known, Known::of(&events[..known]));
        assert_eq!(sums.report.clone().finish(), fold(&events[..known]));
        let compaction = Compaction::new(path, 0, sums, |_| ());
        let mut journal = Journal::append(path, Some(compaction)).unwrap();
        events[known..].iter().for_each(|event| journal.tell(event.clone()));
        journal.finish(Duration::from_secs(60)).unwrap();
        let (sums, _) = Sums::read(path).unwrap();
        assert_eq!(sums.known, Known::of(events));
        assert_eq!(sums.report.finish(), fold(events));
        assert_eq!(read(path).unwrap(), events, "the archives have all of it");
        assert!(matches!(salvage(path).unwrap().0[1].kind, Event::Summed { .. }));
        assert!(!replace::beside(path).exists());
    }

    #[test]
    fn a_compaction_that_is_killed_at_any_step_loses_nothing_and_doubles_nothing() {
        let (events, known) = (events(4), 13);
        let mut sums = Sums::default();
        events[..known].iter().for_each(|event| sums.on_event(event));
        let text = sums.write(1).unwrap();
        // Cut short while it is written, and after each step.
        let cuts = (0..text.len()).step_by(101).map(|length| (length, 0));
        let steps = (0..=STEPS.len()).map(|steps| (text.len(), steps));
        for (length, steps) in cuts.chain(steps) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(FILE_NAME);
            fs::write(&path, lines(&events[..known])).unwrap();
            replace::prepare(&path, &text[..length]).unwrap();
            STEPS[..steps].iter().try_for_each(|step| step(&path, 1)).unwrap();
            go_on(&path, &events, known);
        }
    }

    #[test]
    fn a_compacted_journal_that_is_cut_at_any_byte_keeps_what_was_summed_up() {
        let (events, summed) = (events(3), 9);
        let whole = lines(&compacted(&events, summed));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let start = lines(&compacted(&events[..summed], summed)).len();
        let lines_of = |cut: usize| whole[..cut].iter().rposition(|byte| *byte == b'\n').unwrap() as u64 + 1;
        for cut in start..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let known = summed + whole[start..cut].iter().filter(|byte| **byte == b'\n').count();
            let (sums, _) = Sums::take_up(&path).unwrap();
            assert_eq!(sums.known, Known::of(&events[..known]), "{cut}");
            assert_eq!(sums.report.finish(), fold(&events[..known]), "{cut}");
            assert_eq!(fs::metadata(&path).unwrap().len(), lines_of(cut), "{cut}: what counts is there");
        }
        // Without the sum the jobs would begin again.
        let damaged = [&whole[..start - 9], b"?", &whole[start - 8..]].concat();
        fs::write(&path, damaged).unwrap();
        let error = Sums::read(&path).unwrap_err().to_string();
        assert!(error.contains("put the newest archive"), "{error}");
    }

    #[test]
    fn a_journal_stays_small_and_keeps_its_last_archives() {
        const MAX: u64 = 10_000;
        let events = events(200);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let mut count = 0;
        let (sender, heard) = std::sync::mpsc::channel();
        let on_compacted = move |known: &Known| {
            count += 1;
            sender.send((count, known.jobs.len())).unwrap();
        };
        let compaction = Compaction::new(&path, MAX, Sums::default(), on_compacted);
        let mut journal = Journal::create(&path, Some(compaction)).unwrap();
        events.iter().for_each(|event| journal.tell(event.clone()));
        journal.finish(Duration::from_secs(60)).unwrap();
        let compactions = heard.iter().last().unwrap().0;
        assert!(compactions >= 2, "{compactions}");
        let names = fs::read_dir(directory.path()).unwrap();
        let names: BTreeSet<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(names.len() <= 1 + ARCHIVES as usize, "{names:?}");
        let summed = lines(&compacted(&events, events.len())).len() as u64;
        assert!(fs::metadata(&path).unwrap().len() <= MAX.max(3 * summed));
        let (sums, _) = Sums::read(&path).unwrap();
        assert_eq!((sums.known, sums.report.finish()), (Known::of(&events), fold(&events)));
    }

    #[test]
    fn a_compaction_that_fails_leaves_the_journal_in_use_and_is_tried_again() {
        let events = events(100);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        // Nothing can be written there.
        fs::create_dir(replace::beside(&path)).unwrap();
        let compaction = Compaction::new(&path, 1000, Sums::default(), |_| ());
        let mut journal = Journal::create(&path, Some(compaction)).unwrap();
        events[..300].iter().for_each(|event| journal.tell(event.clone()));
        journal.finish(Duration::from_secs(60)).unwrap();
        assert_eq!(read(&path).unwrap(), events[..300]);
        fs::remove_dir(replace::beside(&path)).unwrap();
        go_on(&path, &events, 300);
    }

    /// `COSWITCH_ENDED` says how many jobs have ended.
    #[test]
    fn a_long_past_is_read_from_its_sum() {
        let ended = std::env::var("COSWITCH_ENDED").map_or(500, |text| text.parse().expect("a number"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let mut file = fs::File::create(&path).unwrap();
        // As of a job of ten seconds, which is sampled every second.
        let sample = |event: &RunEvent| {
            let Event::JobResident { job, .. } = event.kind else { return Vec::new() };
            let used = Bytes::mib(1);
            let by_job = vec![JobMemory { job, used, swapped: Bytes(0), major_faults: 0 }];
            let (node, peak) = (NodeId(0), used);
            let kind = Event::MemorySample { node, used, by_job, looks: 10, peak };
            lines(&vec![RunEvent { at: event.at, kind }; 10])
        };
        for event in events(ended) {
            file.write_all(&[record::write(&event), sample(&event)].concat()).unwrap();
        }
        let job_file = JobFile::open(directory.path()).unwrap();
        let environment = BTreeMap::from([("TEXT".to_owned(), "x".repeat(2000))]);
        let accepted =
            |id| Accepted { job: Job { env: environment.clone(), ..accepted(id).job }, ..accepted(id) };
        let jobs: Vec<u8> = (0..ended).flat_map(|id| record::write(&accepted(id))).collect();
        fs::write(directory.path().join(JOBS), jobs).unwrap();
        let read_all = |what: &str| {
            let began = Instant::now();
            let (sums, _) = Sums::read(&path).unwrap();
            let jobs = read_jobs(directory.path()).unwrap().0;
            let past = Past::of(jobs, sums.known.clone());
            let sizes =
                [FILE_NAME, JOBS].map(|name| fs::metadata(directory.path().join(name)).unwrap().len());
            eprintln!("{what}: {ended} jobs, {sizes:?} bytes, read in {:?}", began.elapsed());
            assert_eq!(past.living(), 0);
            sums
        };
        let before = read_all("before");
        let began = Instant::now();
        let compaction = Compaction::new(&path, 0, before.clone(), job_file.shortened());
        Journal::append(&path, Some(compaction)).unwrap().finish(Duration::from_secs(600)).unwrap();
        // The answer comes when all before is done.
        { job_file }.keep(&[]).unwrap();
        eprintln!("compacted in {:?}", began.elapsed());
        let after = read_all("after");
        let mut expected = before.known;
        expected.sum_up(ENDED_KEPT);
        assert_eq!(after.known, expected);
    }
}
