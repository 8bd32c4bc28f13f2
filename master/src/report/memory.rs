//! What was corrected of the memory of jobs, in words.

use coswitch_policies::{Bytes, JobId, NodeId, Split};

/// Why a set was split, and who left it.
pub(crate) fn split_in_words(split: &Split, name: impl Fn(JobId) -> String) -> String {
    let Split { job, node, resident: held, capacity, at_once, moved } = split;
    let when = if *at_once { " in its turn" } else { "" };
    format!(
        "the set of {} was split{when}: {} grew to {held} on {node}, limit {capacity}; {} goes to {}",
        moved.from,
        name(*job),
        name(moved.job),
        moved.to
    )
}

/// That a job has a node for itself.
pub(crate) fn outgrew_in_words(name: &str, node: NodeId, held: Bytes, capacity: Bytes) -> String {
    format!("{name} alone grew to {held} on {node}, limit {capacity}: it is let run, with nobody beside it")
}
