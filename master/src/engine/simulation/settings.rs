//! A plan in the words of the run core, and what it tells in the words of the trace.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use coswitch_dispatcher::protocol::{Delivery, LaunchSpec, Report, Wait};
use coswitch_policies::{
    Alternate, AutoQuantum, Bytes, Capacity, Estimate, JobId, NodeId, Oracle, Packing, Policy, ShortOfMemory,
    SimTime,
    local::{Technique, explicit::PowerWeight},
    spaceshare::choice::{AllocatorName, QueueName},
};
use coswitch_report::journal::Event;

use super::{
    audit::Audit,
    context::Context,
    plan::{CAPACITY, MIB, Plan, Wish, Work},
};
use crate::{
    api::{Request, Submission},
    config::{ClusterConfig, Job, JobSet, ParkMethod, Settings, TimeLimits},
};

fn job(id: u32, work: Work) -> Job {
    let name = format!("job-{id}");
    let (program, cwd) = (PathBuf::from("/bin/true"), PathBuf::from("/"));
    let (ranks, memory, arrival) = (work.ranks, Bytes(work.mib * MIB), SimTime::from(work.arrival));
    let env = env_of(work);
    let arguments = Vec::new();
    Job {
        id: JobId(id),
        name,
        program,
        delivery: Delivery::default(),
        arguments,
        ranks,
        memory,
        arrival,
        after: Vec::new(),
        env,
        cwd,
        alone: None,
        time_limit: None,
        priority: 0,
        group: None,
        queue: None,
        owner: None,
        wait: None,
    }
}

/// What the ranks have to know.
fn env_of(work: Work) -> BTreeMap<String, String> {
    let unit = work.unit.as_micros().to_string();
    [("UNITS", work.units.to_string()), ("UNIT", unit), ("MEMORY", (work.mib * MIB).to_string())]
        .into_iter()
        .map(|(key, value)| (key.into(), value))
        .collect()
}

/// The jobs of the run file.
pub(super) fn jobs(plan: &Plan) -> Vec<Job> {
    (0..).zip(&plan.jobs).map(|(id, work)| job(id, *work)).collect()
}

pub(super) fn job_set(plan: &Plan) -> JobSet {
    let power = |node: u32| PowerWeight::try_from(1.0 / f64::from(node)).expect("at most 1");
    JobSet {
        name: "simulation".into(),
        file: "simulation.yaml".into(),
        cluster: ClusterConfig {
            hosts: Vec::new(),
            nodes: plan.nodes,
            memory: Capacity::OfAll(Bytes(CAPACITY)),
            memory_asked: std::collections::BTreeSet::new(),
            power: (1..=plan.nodes).map(power).collect(),
            rate: None,
            arena: None,
            store: Vec::new(),
            copies: 0,
            allocation: None,
            encryption: None,
            lost_after: plan.lost_after,
            heartbeats: plan.heartbeats,
            stop_after: plan.stop_after,
            mean_time_between_failures: plan.mean_time_between_failures,
        },
        scheduler: Settings {
            policy: Policy::Hybrid,
            queue: QueueName::default(),
            allocator: AllocatorName::default(),
            sets: None,
            quantum: plan.quantum,
            auto: None,
            auto_bounds: AutoQuantum { overhead: 20_000, longest: Duration::from_secs(600) },
            switching: plan.order,
            short_of_memory: ShortOfMemory::default(),
            oracle: Oracle::default(),
            residency: plan.residency,
            needs: Estimate::default(),
            park: ParkMethod::Criu,
            max_per_cell: None,
            max_queued: None,
            max_queued_per_user: None,
            time_limits: TimeLimits::default(),
            packing: Packing::default(),
            rotation: plan.rotation,
            alternate: Alternate::default(),
            slice: Some(Duration::from_millis(20)),
            local: Some(Technique::DTS_BALANCED),
            wait: Wait::Block,
        },
        jobs: jobs(plan),
    }
}

/// The ranks learn which launch of the job they are.
pub(super) fn with_work(audit: &mut Audit, id: JobId, mut spec: LaunchSpec) -> LaunchSpec {
    spec.env.push(("LIFE".into(), audit.next_life(id).to_string()));
    spec
}

pub(super) fn request(wish: Wish) -> Request {
    match wish {
        Wish::Submit(work) => {
            let job = Job { name: "more".into(), ..job(0, work) };
            Request::Submit(vec![Submission { job, after: Vec::new(), time_limit: None }])
        }
        Wish::Park(job) => Request::Park(JobId(job)),
        Wish::Resume(job) => Request::Resume(JobId(job)),
        Wish::Cancel(job) => Request::Cancel(JobId(job)),
        Wish::Wait(job) => Request::Wait(JobId(job)),
        Wish::Why(job) => Request::Why(JobId(job)),
        Wish::Drain(node) => Request::Drain(NodeId(node)),
        Wish::Undrain(node) => Request::Undrain(NodeId(node)),
    }
}

/// A line of the journal, where a reader of the trace wants it.
pub(super) fn shown(event: &Event) -> Option<String> {
    Some(match event {
        Event::MemorySample { .. } | Event::StepDone { .. } | Event::TurnsForeseen { .. } => return None,
        Event::RunStarted { .. } | Event::SnapshotStored { .. } | Event::JobCopied { .. } => return None,
        Event::MasterReplaced { jobs, .. } => {
            let found = jobs.iter().map(|adopted| format!("{} {:?}", adopted.job.id, adopted.at));
            format!("the new master has found: {}", found.collect::<Vec<_>>().join(", "))
        }
        Event::JobNotCheckpointed { job, reason } => format!("{job} is not checkpointed: {reason}"),
        Event::Warning { text } => format!("warning: {text}"),
        Event::JobFinished { job, outcome, .. } => format!("{job} has ended: {outcome}"),
        Event::SwitchStarted { outgoing, incoming, .. } => {
            format!("switch begins: {outgoing:?} go, {incoming:?} come")
        }
        Event::SwitchEnded { misplaced, .. } => format!("switch ends, misplaced: {misplaced:?}"),
        other => format!("journal: {other:?}"),
    })
}

pub(super) fn say_report(ctx: &mut Context, job: JobId, report: &Report) {
    if !matches!(report, Report::StepDone(_) | Report::Stored { .. } | Report::Progress { .. }) {
        ctx.say(|| format!("{job} reports {report:?}"));
    }
}
