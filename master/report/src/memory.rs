//! Sentences about jobs that outgrew their memory, for the report and the live view.

use coswitch_policies::{Bytes, JobId, NodeId, Split};

/// Why a set was split, and which job left it.
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

/// A job needs a whole node for itself.
pub(crate) fn outgrew_in_words(name: &str, node: NodeId, resident: Bytes, capacity: Bytes) -> String {
    format!("{name} alone grew to {resident} on {node}, limit {capacity}: it runs with no job beside it")
}
