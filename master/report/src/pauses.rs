//! Pauses of the master and of daemons, in words.

use std::time::Duration;

use coswitch_policies::NodeId;

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
