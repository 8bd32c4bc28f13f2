//! What the masters before have written down: the jobs of a cluster, and what became of them.
//!
//! `jobs.jsonl` has each job as it was accepted, in a line that is written before its user is answered;
//! `journal.jsonl` tells what happened since.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Sender, SyncSender, channel, sync_channel},
    thread,
    time::Duration,
};

use coswitch_ckpt::private;
use coswitch_policies::{JobId, SimTime};
use coswitch_report::{Known, journal::record};

use crate::{api::Accepted, config::Job, engine::Record, replace::replace};

/// The name of the file of accepted jobs.
pub const JOBS: &str = "jobs.jsonl";

/// For a disk to take jobs.
const KEEP_LIMIT: Duration = Duration::from_secs(10);

/// What the thread of the file is to do.
#[derive(Debug)]
enum Order {
    /// Append lines; where the answer goes.
    Append(Vec<u8>, SyncSender<io::Result<()>>),
    /// Leave out what nothing needs any more.
    Shorten(Box<Known>),
}

/// The file of accepted jobs. It is written on a thread of its own, because a disk may hang.
#[derive(Debug)]
pub struct JobFile(Sender<Order>);

impl JobFile {
    /// # Errors
    /// Where the file cannot be made or written.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let mut writer = JobWriter { directory: directory.into(), file: open(directory)? };
        let mut length = writer.file.metadata()?.len();
        let (orders, given) = channel();
        thread::Builder::new().name("jobs".into()).spawn(move || {
            for order in given {
                let (lines, answer) = match order {
                    Order::Append(lines, answer) => (lines, answer),
                    Order::Shorten(known) => {
                        match writer.shorten(&known) {
                            Ok(shorter) => length = shorter,
                            Err(error) => tracing::warn!(%error, "{JOBS} stays as long as it is"),
                        }
                        continue;
                    }
                };
                let kept = writer.file.write_all(&lines).and_then(|()| writer.file.sync_data());
                let is_kept = kept.is_ok();
                // Where the answer is not awaited any more, these jobs were refused.
                if answer.send(kept).is_err() || !is_kept {
                    let _ = writer.file.set_len(length);
                } else {
                    length += lines.len() as u64;
                }
            }
        })?;
        Ok(Self(orders))
    }

    /// Leaves out of the file what nothing needs any more, whenever the journal says what is known.
    pub fn shortened(&self) -> impl FnMut(&Known) + Send + 'static {
        let orders = self.0.clone();
        // Where the thread has gone, the cluster is ending.
        move |known| drop(orders.send(Order::Shorten(Box::new(known.clone()))))
    }

    /// Writes jobs down, so that they outlive a power cut.
    ///
    /// # Errors
    /// Where the disk is full or broken, or takes longer than [`KEEP_LIMIT`]; then none of them is there.
    pub fn keep(&mut self, jobs: &[&Accepted]) -> io::Result<()> {
        let lines = jobs.iter().flat_map(record::write).collect();
        // A rendezvous: what was not received was not sent.
        let (answer, answered) = sync_channel(0);
        self.0.send(Order::Append(lines, answer)).map_err(io::Error::other)?;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the disk takes too long");
        answered.recv_timeout(KEEP_LIMIT).map_err(late)?
    }
}

/// The file, to be appended to.
fn open(directory: &Path) -> io::Result<File> {
    let mut file = private::append(&directory.join(JOBS))?;
    // Where the line before was cut short, its rest is a line of its own.
    file.write_all(b"\n")?;
    Ok(file)
}

#[derive(Debug)]
struct JobWriter {
    directory: PathBuf,
    file: File,
}

impl JobWriter {
    /// Leaves out jobs that are forgotten, and of those that have ended what only a launch needs. The length
    /// of the file from now on.
    fn shorten(&mut self, known: &Known) -> io::Result<u64> {
        let (mut jobs, _) = read_jobs(&self.directory)?;
        jobs.retain(|job| !known.has_forgotten(job.job.id));
        for job in jobs.iter_mut().filter(|job| known.has_ended(job.job.id)) {
            job.job.env.clear();
            job.job.arguments.clear();
        }
        let lines: Vec<u8> = jobs.iter().flat_map(record::write).collect();
        self.file = replace(&self.directory.join(JOBS), &lines)?;
        Ok(lines.len() as u64)
    }
}

/// The jobs of a file; lines that are damaged or cut short are counted.
///
/// # Errors
/// Where the file cannot be read.
pub fn read_jobs(directory: &Path) -> io::Result<(Vec<Accepted>, usize)> {
    let text = match private::read(&directory.join(JOBS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        text => text?,
    };
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let (mut jobs, mut damaged) = (Vec::new(), 0);
    for line in lines {
        match record::read(line) {
            Ok(job) => jobs.push(job),
            Err(_) => damaged += 1,
        }
    }
    Ok((jobs, damaged))
}

/// What is known of a cluster's jobs.
#[derive(Clone, Debug, Default)]
pub struct Past {
    accepted: BTreeMap<JobId, Accepted>,
    pub known: Known,
}

impl Past {
    pub fn of(jobs: Vec<Accepted>, mut known: Known) -> Self {
        let jobs = jobs.into_iter().filter(|job| !known.has_forgotten(job.job.id));
        let accepted: BTreeMap<JobId, Accepted> = jobs.map(|job| (job.job.id, job)).collect();
        known.last = accepted.values().map(|job| job.submitted).fold(known.last, SimTime::max);
        Self { accepted, known }
    }

    /// The jobs that have not ended.
    pub fn living(&self) -> usize {
        self.accepted.keys().filter(|job| !self.known.has_ended(**job)).count()
    }

    pub(crate) fn records(self) -> impl Iterator<Item = (JobId, (Job, Record))> {
        let Self { accepted, mut known } = self;
        accepted.into_iter().map(move |(id, job)| {
            let job_known = known.jobs.remove(&id).unwrap_or_default();
            let mut record = Record::of_accepted(&job).with(job_known);
            // They have succeeded, or this job would have ended with them.
            record.after.retain(|before| !known.has_forgotten(*before));
            (id, (job.job, record))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use coswitch_dispatcher::protocol::{Delivery, Wait};
    use coswitch_policies::Bytes;
    use coswitch_report::journal::{Event, JobOutcome, RunEvent};

    use super::*;
    use crate::api::User;

    pub(crate) fn accepted(id: u32) -> Accepted {
        let job = Job {
            id: JobId(id),
            name: format!("job-{id}"),
            program: "/bin/true".into(),
            delivery: Delivery::default(),
            arguments: vec!["ä\n".into()],
            ranks: 2,
            memory: Bytes::mib(1),
            arrival: SimTime(7),
            after: Vec::new(),
            env: BTreeMap::new(),
            cwd: "/".into(),
            alone: None,
            time_limit: None,
            owner: None,
            wait: Some(Wait::Block),
            priority: 0,
            group: None,
            queue: None,
        };
        Accepted { user: User(1000), submitted: SimTime(7), job, after: vec![JobId(0)], time_limit: None }
    }

    /// A master died while it wrote; the next one writes on.
    #[test]
    fn a_file_of_jobs_that_was_cut_at_any_byte_loses_only_the_job_that_was_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(JOBS);
        let mut file = JobFile::open(directory.path()).unwrap();
        (0..3).try_for_each(|id| file.keep(&[&accepted(id)])).unwrap();
        let whole = fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            JobFile::open(directory.path()).unwrap().keep(&[&accepted(9)]).unwrap();
            let (jobs, damaged) = read_jobs(directory.path()).unwrap();
            // A line is whole without its end.
            let lines = whole[..cut].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let kept = lines.filter(|line| record::read::<Accepted>(line).is_ok()).count();
            let expected: Vec<Accepted> = (0..3).take(kept).chain([9]).map(accepted).collect();
            assert_eq!(jobs, expected, "{cut}");
            assert!(damaged <= 1, "{cut}: {damaged}");
        }
        assert_eq!(read_jobs(directory.path()).unwrap().0.len(), 4);
    }

    #[test]
    fn the_journal_says_what_became_of_each_job() {
        let at = |ms: u64, kind| RunEvent { at: SimTime(ms * 1_000_000), kind };
        let job = JobId(0);
        let events = [
            at(10, Event::JobRunning { job }),
            at(20, Event::JobHeld { job }),
            at(40, Event::Warning { text: "time passes".into() }),
        ];
        let past = Past::of(vec![accepted(0), accepted(1)], Known::of(&events));
        assert_eq!((past.living(), past.known.last, past.known.began), (2, SimTime(40_000_000), false));
        assert_eq!(past.known.ran_last, BTreeMap::from([(job, SimTime(40_000_000))]));
        assert!(past.known.jobs[&job].held);
        let outcome = JobOutcome::Exit(0);
        let ended = at(50, Event::JobFinished { job, outcome, last_output: String::new() });
        let known = Known::of(events.iter().chain([&ended]));
        let past = Past::of(vec![accepted(0), accepted(1)], known);
        assert_eq!(past.living(), 1);
        assert!(past.known.ran_last.is_empty());
        let records: Vec<_> = past.records().collect();
        assert_eq!(records[0].1.1.ended, Some((SimTime(50_000_000), JobOutcome::Exit(0))));
    }

    /// Job 0 is forgotten, job 1 has ended, jobs 2 and 3 live; each follows job 0.
    #[test]
    fn a_job_that_is_forgotten_never_comes_back_and_one_that_has_ended_is_short() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = JobFile::open(directory.path()).unwrap();
        (0..3).try_for_each(|id| file.keep(&[&accepted(id)])).unwrap();
        let ended = |job| Event::JobFinished {
            job: JobId(job),
            outcome: JobOutcome::Exit(0),
            last_output: String::new(),
        };
        let events = [0, 1].map(|job| RunEvent { at: SimTime(u64::from(job)), kind: ended(job) });
        let mut known = Known::of(&events);
        known.sum_up(1);
        let past = || Past::of(read_jobs(directory.path()).unwrap().0, known.clone());
        let check = |living: usize| {
            let past = past();
            assert_eq!(past.living(), living);
            let records: Vec<_> = past.records().collect();
            assert_eq!(records[0].0, JobId(1));
            assert!(records.iter().all(|(_, (_, record))| record.after.is_empty()), "{records:?}");
        };
        // The master died before it could shorten the file.
        check(1);
        file.shortened()(&known);
        file.keep(&[&accepted(3)]).unwrap();
        check(2);
        let (jobs, _) = read_jobs(directory.path()).unwrap();
        let short = Job { arguments: Vec::new(), ..accepted(1).job };
        let short = Accepted { job: short, ..accepted(1) };
        assert_eq!(jobs, [short, accepted(2), accepted(3)]);
    }
}
