//! What the masters before have written down: the jobs of a cluster, and what became of them.
//!
//! `jobs.jsonl` has each job as it was accepted, in a line that is written before its user is answered;
//! `journal.jsonl` tells what happened since.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    path::Path,
    sync::mpsc::{Sender, SyncSender, channel, sync_channel},
    thread,
    time::Duration,
};

use coswitch_ckpt::private;
use coswitch_policies::{Bytes, JobId, NodeId, SimTime};
use coswitch_report::journal::{Event, JobOutcome, RunEvent, record};

use crate::{api::Accepted, config::Job, engine::Record};

/// The name of the file of accepted jobs.
pub const JOBS: &str = "jobs.jsonl";

/// For a disk to take jobs.
const KEEP_LIMIT: Duration = Duration::from_secs(10);

/// Lines for the file of accepted jobs, and where the answer goes.
type Lines = (Vec<u8>, SyncSender<io::Result<()>>);

/// The file of accepted jobs. It is written on a thread of its own, because a disk may hang.
#[derive(Debug)]
pub struct JobFile(Sender<Lines>);

impl JobFile {
    /// # Errors
    /// Where the file cannot be made or written.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let mut file = private::append(&directory.join(JOBS))?;
        // Where the line before was cut short, its rest is a line of its own.
        file.write_all(b"\n")?;
        let mut length = file.metadata()?.len();
        let (lines, given) = channel::<Lines>();
        thread::Builder::new().name("jobs".into()).spawn(move || {
            for (lines, answer) in given {
                let kept = file.write_all(&lines).and_then(|()| file.sync_data());
                let is_kept = kept.is_ok();
                // Where the answer is not awaited any more, these jobs were refused.
                if answer.send(kept).is_err() || !is_kept {
                    let _ = file.set_len(length);
                } else {
                    length += lines.len() as u64;
                }
            }
        })?;
        Ok(Self(lines))
    }

    /// Writes jobs down, so that they outlive a power cut.
    ///
    /// # Errors
    /// Where the disk is full or broken, or takes longer than [`KEEP_LIMIT`]; then none of them is there.
    pub fn keep(&mut self, jobs: &[&Accepted]) -> io::Result<()> {
        let lines = jobs.iter().flat_map(record::write).collect();
        // A rendezvous: what was not received was not sent.
        let (answer, answered) = sync_channel(0);
        self.0.send((lines, answer)).map_err(io::Error::other)?;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the disk takes too long");
        answered.recv_timeout(KEEP_LIMIT).map_err(late)?
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
    records: BTreeMap<JobId, Record>,
    /// The journal has its beginning: a master may have died before that was written.
    pub began: bool,
    /// When each job ran last.
    pub ran_last: BTreeMap<JobId, SimTime>,
    /// Measurements that differ from what jobs declare.
    pub residents: BTreeMap<(JobId, NodeId), Bytes>,
    /// Nodes that are to be empty.
    pub drained: BTreeSet<NodeId>,
    /// The node of each rank, of jobs of which a part has moved since their launch.
    pub moved: BTreeMap<JobId, Vec<NodeId>>,
    /// How many switches were begun.
    pub switches: u32,
    /// The time of the last event.
    pub last: SimTime,
    running: BTreeSet<JobId>,
}

impl Past {
    pub fn of(jobs: Vec<Accepted>, events: &[RunEvent]) -> Self {
        let mut past = Self::default();
        for job in jobs {
            past.last = past.last.max(job.submitted);
            past.records.insert(job.job.id, Record::of_accepted(&job));
            past.accepted.insert(job.job.id, job);
        }
        events.iter().for_each(|event| past.on_event(event));
        past
    }

    /// The jobs that have not ended.
    pub fn living(&self) -> usize {
        self.records.values().filter(|record| record.ended.is_none()).count()
    }

    pub(crate) fn records(self) -> impl Iterator<Item = (JobId, (Job, Record))> {
        let Self { accepted, mut records, .. } = self;
        accepted.into_iter().map(move |(id, job)| {
            let record = records.remove(&id).unwrap_or_default();
            (id, (job.job, record))
        })
    }

    fn on_event(&mut self, RunEvent { at, kind }: &RunEvent) {
        let at = *at;
        self.last = self.last.max(at);
        for job in &self.running {
            self.ran_last.insert(*job, at);
        }
        match kind {
            Event::RunStarted { .. } => self.began = true,
            Event::JobRunning { job } => {
                self.running.insert(*job);
                self.change(*job, |record| record.began_running(at));
            }
            Event::MasterReplaced { jobs, .. } => {
                let runs = |job: &JobId| {
                    jobs.iter().any(|adopted| {
                        adopted.job.id == *job && adopted.at == coswitch_policies::Residence::Running
                    })
                };
                self.running.retain(|job| runs(job));
                for job in jobs.iter().map(|adopted| adopted.job.id) {
                    if runs(&job) {
                        self.running.insert(job);
                        self.change(job, |record| record.began_running(at));
                    } else {
                        let last = self.ran_last.get(&job).copied().unwrap_or_default();
                        self.change(job, |record| record.ended_running(last));
                    }
                }
            }
            Event::SwitchStarted { switch, outgoing, .. } => {
                self.switches = self.switches.max(switch.0 + 1);
                for job in outgoing {
                    self.running.remove(job);
                    self.change(*job, |record| record.ended_running(at));
                }
            }
            Event::JobDisplaced { job, .. } => {
                self.running.remove(job);
                self.change(*job, |record| record.ended_running(at));
            }
            Event::JobMoved { job, placement, .. } => {
                self.moved.insert(*job, placement.clone());
            }
            Event::JobLaunched { job, .. } => drop(self.moved.remove(job)),
            Event::JobHeld { job } => self.change(*job, |record| record.held = true),
            Event::JobReleased { job } => self.change(*job, |record| record.held = false),
            Event::NodeDrained { node } => drop(self.drained.insert(*node)),
            Event::NodeUndrained { node } => drop(self.drained.remove(node)),
            Event::JobResident { job, node, resident } => {
                self.residents.insert((*job, *node), *resident);
            }
            Event::JobFinished { job, outcome, .. } => self.end(*job, at, outcome),
            _ => {}
        }
    }

    fn end(&mut self, job: JobId, at: SimTime, outcome: &JobOutcome) {
        self.running.remove(&job);
        self.ran_last.remove(&job);
        self.residents.retain(|(other, _), _| *other != job);
        self.change(job, |record| {
            record.ended_running(at);
            record.ended = Some((at, outcome.clone()));
        });
    }

    fn change(&mut self, job: JobId, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.records.get_mut(&job) {
            change(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use coswitch_dispatcher::protocol::Wait;

    use super::*;
    use crate::api::User;

    fn accepted(id: u32) -> Accepted {
        let job = Job {
            id: JobId(id),
            name: format!("job-{id}"),
            program: "/bin/true".into(),
            arguments: vec!["ä\n".into()],
            ranks: 2,
            memory: Bytes::mib(1),
            arrival: SimTime(7),
            after: Vec::new(),
            env: BTreeMap::new(),
            cwd: "/".into(),
            alone: None,
            time_limit: None,
            wait: Wait::Block,
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
        let past = Past::of(vec![accepted(0), accepted(1)], &events);
        assert_eq!((past.living(), past.last, past.began), (2, SimTime(40_000_000), false));
        assert_eq!(past.ran_last, BTreeMap::from([(job, SimTime(40_000_000))]));
        assert!(past.records[&job].held);
        let outcome = JobOutcome::Exit(0);
        let ended = at(50, Event::JobFinished { job, outcome, last_output: String::new() });
        let past = Past::of(vec![accepted(0), accepted(1)], &[events.to_vec(), vec![ended]].concat());
        assert_eq!(past.living(), 1);
        assert!(past.ran_last.is_empty());
        let records: Vec<_> = past.records().collect();
        assert_eq!(records[0].1.1.ended, Some((SimTime(50_000_000), JobOutcome::Exit(0))));
    }
}
