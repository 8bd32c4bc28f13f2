//! Pauses and losses of the master and of daemons, in words.

use std::time::Duration;

use coswitch_policies::NodeId;

use crate::words;

pub(crate) fn lost_in_words(node: NodeId, reason: &str) -> String {
    format!("{node} was lost: {reason}")
}

pub(crate) fn upgraded_in_words(node: NodeId, version: &str, pause: Duration, jobs: usize) -> String {
    let stood_still = match jobs {
        0 => "no job ran there".to_owned(),
        jobs => format!("{} stood still for {} ms", words::plural(jobs, "job"), pause.as_millis()),
    };
    format!("{node} has another daemon, of version {version}; {stood_still}")
}

pub(crate) fn drained_in_words(node: NodeId) -> String {
    format!("{node} is drained: its jobs leave memory, and it takes no others")
}

pub(crate) fn undrained_in_words(node: NodeId) -> String {
    format!("{node} takes jobs again")
}

pub(crate) fn back_in_words(node: NodeId) -> String {
    format!("{node} is back")
}

/// The part of a job on a lost node has moved.
pub(crate) fn moved_in_words(job: &str, from: NodeId, to: NodeId) -> String {
    format!("the part of {job} on {from} is on {to} now, from its copy")
}

pub(crate) fn survived_in_words(job: &str, node: NodeId) -> String {
    format!("{job} has survived the daemon of {node}, and goes on where it was")
}

pub(crate) fn repeats_in_words(job: &str, work: Duration) -> String {
    format!("{job} repeats {}, because a node was lost", words::span(work))
}

pub(crate) fn not_checkpointed_in_words(job: &str, reason: &str) -> String {
    format!("{job} runs on without a new checkpoint: {reason}")
}

pub(crate) fn replaced_in_words(generation: u64, held: usize) -> String {
    format!("master {generation} of the cluster has taken over; the nodes held {held} jobs")
}

pub(crate) fn silence_in_words(node: NodeId, silence: Duration) -> String {
    format!("{node} was silent for {:.1} s and was waited for", silence.as_secs_f64())
}

pub(crate) fn standstill_in_words(node: NodeId, silence: Duration, frozen: Duration) -> String {
    format!(
        "the jobs on {node} stood still for {:.1} s, because the master was silent for {:.1} s; their \
         running times include it",
        frozen.as_secs_f64(),
        silence.as_secs_f64()
    )
}
