//! A property: whatever jobs answer and users ask, and whichever masters die, memory holds and the run ends.

use proptest::prelude::*;

use coswitch_report::Known;

use super::*;
use crate::past::Past;

/// Dispatchers that answer late, fail, or see their application end.
#[derive(Default)]
struct Applications {
    residence: BTreeMap<JobId, Residence>,
    orders: BTreeMap<JobId, Order>,
    placements: BTreeMap<JobId, Vec<NodeId>>,
    /// A new master asks where they are.
    adopted: BTreeSet<JobId>,
    /// What the masters have told the journal.
    told: Vec<RunEvent>,
    down: BTreeSet<NodeId>,
    /// They have lost a node, and the master has not heard of it.
    displaced: BTreeSet<JobId>,
    /// They have been parked.
    saved: BTreeSet<JobId>,
}

impl Applications {
    /// Takes the outputs of one call; whether the run is over.
    fn take(&mut self, outputs: Vec<Output>) -> bool {
        let mut over = false;
        for output in outputs {
            let (job, order) = match output {
                Output::Launch(job, spec) => {
                    assert!((1..=NODES as usize).contains(&spec.placement.len()), "a gang is whole");
                    assert!(self.placements.insert(job, spec.placement).is_none(), "{job} is launched once");
                    (job, Order::Launch)
                }
                Output::Order(job, order) => (job, order),
                Output::Over(_) => {
                    over = true;
                    continue;
                }
                Output::Adopt(job, spec, ended) => {
                    assert!(ended.is_some() || self.placements[&job] == spec.placement);
                    self.adopted.insert(job);
                    continue;
                }
                Output::Tell(event) => {
                    self.told.push(event);
                    continue;
                }
                Output::Allow(..)
                | Output::Strobe(_)
                | Output::SetSlices(_)
                | Output::Answer(..)
                | Output::Keep(_)
                | Output::Restart(_)
                | Output::Replace(_)
                | Output::DropCopies(..)
                | Output::Move(..)
                | Output::Release(..) => continue,
            };
            // A dispatcher that ends its application does nothing else.
            if self.orders.get(&job) == Some(&Order::End) {
                continue;
            }
            let before = self.orders.insert(job, order);
            assert!(before.is_none() || order == Order::End, "{job} has one order at a time");
        }
        over
    }

    /// How many jobs are on a node, those on their way in or out included.
    fn jobs_on(&self, node: NodeId) -> usize {
        self.there().filter(|(_, nodes)| nodes.contains(&node)).count()
    }

    fn there(&self) -> impl Iterator<Item = (&JobId, &Vec<NodeId>)> {
        let comes = |job: &JobId| {
            matches!(self.orders.get(job), Some(Order::Launch | Order::Restore | Order::Prefetch))
        };
        self.placements.iter().filter(move |(job, _)| {
            comes(job) || self.residence.get(job).is_some_and(|residence| residence.is_in_memory())
        })
    }

    /// What jobs hold of a node, those on their way in or out included.
    fn held(&self, jobs: &BTreeMap<JobId, Bytes>, node: NodeId) -> Bytes {
        let ranks = |nodes: &Vec<NodeId>| nodes.iter().filter(|other| **other == node).count() as u32;
        self.there().map(|(job, nodes)| jobs[job].times(ranks(nodes))).sum()
    }

    /// A node is lost, and what runs there.
    fn lose(&mut self, node: NodeId) -> Input {
        self.down.insert(node);
        for (job, _) in self.placements.clone().into_iter().filter(|(_, nodes)| nodes.contains(&node)) {
            let at = self.residence.get(&job).copied().unwrap_or(Residence::Unlaunched);
            if at.is_ended() || self.orders.get(&job) == Some(&Order::End) {
                continue;
            }
            self.displaced.insert(job);
            let is_saved = self.saved.contains(&job);
            self.residence.insert(job, if is_saved { Residence::Parked } else { Residence::Unlaunched });
        }
        Input::Node(NodeEvent::Lost { node, reason: "a test".into() })
    }

    fn is_down(&self, job: JobId) -> bool {
        self.placements.get(&job).is_some_and(|nodes| nodes.iter().any(|node| self.down.contains(node)))
    }

    /// Where the job is after the loss of a node.
    fn tell_displaced(&mut self, job: JobId) -> Input {
        self.displaced.remove(&job);
        if self.orders.get(&job).is_some_and(|order| *order != Order::End) {
            self.orders.remove(&job);
        }
        Input::Report(
            job,
            match self.residence[&job] {
                Residence::Parked => Report::Displaced { why: "a test".into() },
                _ => {
                    self.placements.remove(&job);
                    self.orders.remove(&job);
                    self.adopted.remove(&job);
                    Report::Unlaunched
                }
            },
        )
    }

    /// Answers the order of a job, as chance has it.
    fn answer(&mut self, job: JobId, chance: u8) -> Input {
        if self.adopted.remove(&job) && !self.orders.contains_key(&job) {
            return self.found(job, chance);
        }
        if self.displaced.contains(&job) {
            return self.tell_displaced(job);
        }
        let order = self.orders.remove(&job).expect("the job has an order");
        if self.is_down(job) && order != Order::End {
            self.residence.entry(job).or_insert(Residence::Unlaunched);
            return self.tell_displaced(job);
        }
        let at = self.residence.get(&job).copied().unwrap_or(Residence::Unlaunched);
        let ended = |outcome| (Residence::Finished, Report::Ended(outcome));
        let (residence, report) = match (order, chance) {
            (Order::End, _) => ended(AppOutcome::Stopped),
            (_, 0) => ended(AppOutcome::Succeeded),
            (_, 1) => ended(AppOutcome::Lost { reason: "a test".into() }),
            (Order::Park | Order::Suspend, 2 | 3) if at == Residence::Running => {
                (at, Report::StillRunning { cause: if chance == 2 { full() } else { failed() } })
            }
            (Order::Park, 2 | 3) if at == Residence::Suspended => {
                (at, Report::StillSuspended { cause: if chance == 2 { full() } else { failed() } })
            }
            (Order::Launch | Order::Resume | Order::Restore, _) => (Residence::Running, Report::Running),
            (Order::Suspend | Order::Prefetch, _) => (Residence::Suspended, Report::Suspended),
            (Order::Park, _) => (Residence::Parked, Report::Parked),
            (Order::Checkpoint, _) => unreachable!("nodes never fail"),
        };
        if residence == Residence::Parked {
            self.saved.insert(job);
        }
        self.residence.insert(job, residence);
        Input::Report(job, report)
    }

    /// Answers a new master.
    fn found(&mut self, job: JobId, chance: u8) -> Input {
        let report = match self.residence[&job] {
            Residence::Running if chance == 0 => Report::StillRunning { cause: failed() },
            Residence::Running => Report::Running,
            Residence::Suspended => Report::Suspended,
            Residence::Parked => Report::Parked,
            Residence::Finished => Report::Ended(AppOutcome::Stopped),
            // It was there in part.
            _ => {
                self.placements.remove(&job);
                Report::Unlaunched
            }
        };
        Input::Report(job, report)
    }

    /// The master dies: some of what it has ordered is done. Returns the next one.
    fn next_master(&mut self, set: JobSet, mut chances: u64) -> Run {
        let mut released = BTreeMap::new();
        for (job, order) in std::mem::take(&mut self.orders) {
            let (is_done, is_begun) = (chances & 1 == 1, chances & 2 == 2);
            chances = chances.rotate_right(2);
            let residence = match order {
                Order::Launch if !is_done => {
                    self.residence.insert(job, Residence::Unlaunched);
                    if !is_begun {
                        self.placements.remove(&job);
                    }
                    continue;
                }
                _ if !is_done => {
                    self.residence.entry(job).or_insert(Residence::Unlaunched);
                    continue;
                }
                Order::End => {
                    released.insert(job, AppOutcome::Stopped);
                    Residence::Finished
                }
                Order::Launch | Order::Resume | Order::Restore => Residence::Running,
                Order::Suspend | Order::Prefetch => Residence::Suspended,
                Order::Park => Residence::Parked,
                Order::Checkpoint => unreachable!("nodes never fail"),
            };
            self.residence.insert(job, residence);
        }
        self.adopted.clear();
        for job in std::mem::take(&mut self.displaced) {
            if self.residence[&job] == Residence::Unlaunched {
                self.placements.remove(&job);
            }
        }
        // A job that was never launched has a place while a part of it is on a node.
        let held = self.placements.iter().filter(|(job, _)| !self.residence[*job].is_ended());
        let past = Past::of(set.jobs.iter().map(Accepted::of_file).collect(), Known::of(&self.told));
        let mut by_node: BTreeMap<NodeId, Vec<Held>> = BTreeMap::new();
        for (job, nodes) in held {
            let part = Held { job: *job, launched: Some(1), placement: nodes.clone() };
            nodes.iter().for_each(|node| by_node.entry(*node).or_default().push(part.clone()));
        }
        let copies = BTreeMap::new();
        let takeover = Takeover { generation: 2, past, held: by_node, copies, released };
        Run::resume_run(set, RunSettings::default(), takeover).expect("the settings are right")
    }

    /// The jobs that have something to answer.
    fn pending(&self) -> Vec<JobId> {
        let asked = self.adopted.iter().chain(self.orders.keys());
        asked.chain(&self.displaced).copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// A running job without an order ends by itself.
    fn end(&mut self, pick: usize) -> Option<Input> {
        let is_asked = |job: &JobId| {
            self.orders.contains_key(job) || self.adopted.contains(job) || self.displaced.contains(job)
        };
        let runs = |(job, at): &(&JobId, &Residence)| **at == Residence::Running && !is_asked(job);
        let running: Vec<JobId> = self.residence.iter().filter(runs).map(|(job, _)| *job).collect();
        let job = *running.get(pick % running.len().max(1))?;
        self.residence.insert(job, Residence::Finished);
        Some(Input::Report(job, Report::Ended(AppOutcome::Succeeded)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Over random answers at random times, under turns and under each queue, whatever users ask, and masters
    /// and nodes that die: each gang is launched whole and moved as one, no set exceeds a node's memory
    /// before, during and after a switch, every order is answered, and the run ends.
    #[test]
    fn whatever_jobs_answer_memory_holds_and_the_run_ends(
        sizes in prop::collection::vec((10_u64..100, 0_u64..3000), 1..7),
        queue in prop::option::of((0..QueueName::ALL.len(), 1_u64..20)),
        order in prop_oneof![
            Just(SwitchOrder::Sequential), Just(SwitchOrder::Overlapped), Just(SwitchOrder::Prefetch)
        ],
        planned in any::<bool>(),
        chances in prop::collection::vec((0_u8..24, 0_usize..8, 1_u64..400), 1500),
        users in prop::collection::vec((0_usize..1000, 0_u8..3, 0_u32..7), 0..12),
        deaths in prop::collection::btree_map(0_usize..300, any::<u64>(), 0..4),
        losses in prop::collection::btree_map(0_usize..300, (0..NODES, 1_usize..60), 0..4),
    ) {
        let mut jobs: Vec<Job> = (0..).zip(sizes).map(|(id, (mib, arrival))| job(id, mib, arrival)).collect();
        // Under a queue some jobs leave a node to others, and each says for how long it runs.
        for job in jobs.iter_mut().filter(|_| queue.is_some()) {
            job.ranks = if job.memory.0 % 3 == 0 { 1 } else { NODES };
            job.alone = queue.map(|(_, secs)| Duration::from_secs(1 + (secs * u64::from(job.id.0 + 1)) % 7));
        }
        let memory: BTreeMap<JobId, Bytes> = jobs.iter().map(|job| (job.id, job.memory)).collect();
        let residency = if planned { Residency::Planned } else { Residency::None };
        let mut set = job_set(jobs, order, residency);
        if let Some((queue, _)) = queue {
            (set.scheduler.policy, set.scheduler.queue) = (Policy::Batch, QueueName::ALL[queue].1);
        }
        let (mut run, mut apps) = (run(set.clone()), Applications::default());
        let (mut now, mut over) = (SimTime(0), apps.take(run.on(SimTime(0), Input::Due)));
        for (step, (chance, pick, ms)) in chances.into_iter().enumerate() {
            if over {
                break;
            }
            now = now.after(Duration::from_millis(ms));
            if let Some(chances) = deaths.get(&step) {
                run = apps.next_master(set.clone(), *chances);
                over |= apps.take(run.on(now, Input::Due));
                for node in apps.down.clone() {
                    let lost = apps.lose(node);
                    over |= apps.take(run.on(now, lost));
                }
            }
            let lost_now = losses.get(&step).map(|(node, _)| NodeId(*node));
            if let Some(node) = lost_now.filter(|node| !apps.down.contains(node)) {
                let lost = apps.lose(node);
                over |= apps.take(run.on(now, lost));
            }
            for (_, (node, _)) in losses.iter().filter(|(at, (_, after))| **at + after == step) {
                if apps.down.remove(&NodeId(*node)) {
                    over |= apps.take(run.on(now, Input::Node(NodeEvent::Back { node: NodeId(*node) })));
                }
            }
            // What users ask meanwhile; at last whoever is held is let go on.
            for (_, what, job) in users.iter().filter(|(at, ..)| *at == step) {
                let request = [Request::Park, Request::Resume, Request::Cancel][usize::from(*what)];
                over |= apps.take(run.on(now, requests::asked(request(JobId(*job)))));
            }
            for job in memory.keys().filter(|_| step == 1000) {
                over |= apps.take(run.on(now, requests::asked(Request::Resume(*job))));
            }
            let pending = apps.pending();
            let input = match (run.due(), chance % 4) {
                (Some(at), 0) if at <= now || pending.is_empty() => {
                    now = now.max(at);
                    Some(Input::Due)
                }
                (_, 1) => apps.end(pick),
                _ if pending.is_empty() => run.due().map(|at| { now = now.max(at); Input::Due }),
                _ => Some(apps.answer(pending[pick % pending.len()], chance)),
            };
            let Some(input) = input.or_else(|| apps.end(pick)) else { continue };
            over |= apps.take(run.on(now, input));
            for node in (0..NODES).map(NodeId) {
                let held = apps.held(&memory, node);
                prop_assert!(held <= Bytes(100 * MIB), "{held} on {node}");
                prop_assert!(queue.is_none() || apps.jobs_on(node) <= 1, "jobs have nodes of their own");
            }
        }
        prop_assert!(over, "the run ends: {:?}", apps.orders);
        prop_assert!(apps.pending().is_empty(), "every order is answered");
    }
}
