//! A log on a machine of several node sets: which queue its jobs wait in, and how busy each set is.

use std::time::Duration;

use coswitch_policies::spaceshare::{
    allocate::Rect,
    layout::{Daytime, Layout, LayoutError},
    machine::GroupId,
    queue::QueueId,
};

use super::{Blocks, Execution, Jobs};
use crate::workload::{
    LogStart,
    swf::{Log, Record},
};

/// The beginning of a log as a machine takes it.
#[must_use]
pub fn daytime(start: LogStart) -> Daytime {
    Daytime { since_midnight: Duration::from_secs(start.second), weekday: start.weekday() }
}

/// By set, Σ nodes · execution ÷ (nodes of the set · makespan). A job in several sets, or with more nodes
/// than it requested, counts with its request, in proportion.
#[must_use]
pub fn utilisation(
    layout: &Layout,
    jobs: &Jobs,
    executions: &[Execution],
    blocks: &Blocks,
    makespan_s: f64,
) -> Vec<f64> {
    let area = |rect: &Rect| f64::from(rect.width) * f64::from(rect.height);
    let (mut held, mut used) = (vec![0.0; executions.len()], vec![0.0; layout.sets.len()]);
    for (job, _, rect) in &blocks.held {
        held[job.0 as usize] += area(rect);
    }
    for (job, set, rect) in &blocks.held {
        let job = job.0 as usize;
        let span = executions[job].finished.since(executions[job].started).as_secs_f64();
        let asked = f64::from(jobs.jobs[job].queued.request.units());
        used[usize::from(set.0)] += span * asked * area(rect) / held[job];
    }
    let all = layout.meshes().into_iter().map(|mesh| f64::from(mesh.units()) * makespan_s);
    used.into_iter().zip(all).map(|(used, all)| if all > 0.0 { used / all } else { 0.0 }).collect()
}

/// The records of the partition.
#[must_use]
pub fn records(layout: &Layout, log: &Log) -> Log {
    layout.partition.map_or_else(|| log.clone(), |number| super::paragon::partition(log, number))
}

/// Returns a function that finds the queue and the group of a record of `log`.
///
/// # Errors
/// Where a name is unknown.
pub fn homes(
    layout: &Layout,
    log: &Log,
) -> Result<impl Fn(&Record) -> (QueueId, GroupId) + use<>, LayoutError> {
    let (names, table) = (log.queue_names(), layout.table()?);
    let known: Vec<String> = layout.queues.iter().map(|queue| queue.name.clone()).collect();
    Ok(move |record: &Record| {
        let number = record.queue.unwrap_or(0);
        let is_it = |known: &String| names.get(&number) == Some(known) || number.to_string() == *known;
        let place = known.iter().position(is_it).unwrap_or(0);
        (QueueId(u16::try_from(place).unwrap_or(0)), table.0[place].group)
    })
}

/// Sets the limits of the jobs to those of their queues.
pub fn limit(layout: &Layout, jobs: &mut Jobs) {
    for job in &mut jobs.jobs {
        let longest = layout.queues.get(usize::from(job.queued.queue.0)).and_then(|queue| queue.longest());
        if let Some(longest) = longest {
            job.queued.limit = longest.max(job.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaceshare::{AllocatorName, QueueName};

    fn example() -> Layout {
        let text = r#"{
            "sets": [{"name": "thin", "width": 8}, {"name": "fat", "width": 16}],
            "groups": [
                {"name": "all", "sets": ["thin", "fat"]},
                {"name": "night", "prime": [], "sets": ["fat"]}
            ],
            "queues": [{"name": "small", "group": "all"}, {"name": "3", "group": "night"}]
        }"#;
        serde_json::from_str(text).expect("a layout")
    }

    #[test]
    fn sets_groups_and_queues_become_a_machine() {
        let midnight = LogStart { day: 0, second: 0 };
        let machine = example().machine(AllocatorName::FirstFit, daytime(midnight)).unwrap();
        let at = |hour: u64| Duration::from_secs(3600 * hour).into();
        assert_eq!((machine.total(), example().nodes()), (24, 24));
        assert_eq!([12, 20].map(|hour| machine.free_in(at(hour), GroupId(1))), [0, 16]);
        let log: Log = "; Queue: 1 small\n".parse().unwrap();
        let layout = example();
        let home = homes(&layout, &log).unwrap();
        let of = |queue| home(&Record { queue: Some(queue), ..Record::default() });
        assert_eq!(of(1), (QueueId(0), GroupId(0)));
        assert_eq!(of(3), (QueueId(1), GroupId(1)));
        assert_eq!(of(7), of(1), "a queue that is not known is the first");
    }

    #[test]
    fn each_set_has_its_own_utilisation_and_together_they_are_that_of_the_machine() {
        // The buddies of the second set give four nodes to the job that asks for three.
        let log: Log =
            "1 0 -1 10 8 -1 -1 8 -1 -1 1 1 1 1 1 1 -1 -1\n2 0 -1 20 3 -1 -1 3 -1 -1 1 1 1 1 3 1 -1 -1\n"
                .parse()
                .unwrap();
        let layout = example();
        let mut machine =
            layout.machine(AllocatorName::Buddy, daytime(LogStart { day: 0, second: 0 })).unwrap();
        let jobs = Jobs::of_log(&log, &machine, homes(&layout, &log).unwrap());
        let mut order = layout.order(QueueName::Fcfs).unwrap();
        let mut blocks = Blocks::default();
        let executions = crate::spaceshare::run(&jobs.jobs, &mut machine, &mut *order, &mut blocks).unwrap();
        let makespan = 20.0;
        let by_set = utilisation(&layout, &jobs, &executions, &blocks, makespan);
        let whole: f64 = by_set.iter().zip([8.0, 16.0]).map(|(used, nodes)| used * nodes * makespan).sum();
        assert!((whole - (8.0 * 10.0 + 3.0 * 20.0)).abs() < 1e-9, "{by_set:?}");
        assert!(by_set.iter().all(|used| *used > 0.0), "{by_set:?}");
    }
}
