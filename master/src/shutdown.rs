//! The orderly shutdown of the master's machine, which a cluster that stays is to outlive.

use std::process::Command;

use thiserror::Error;

use crate::doctor::command;

/// The master leaves its cluster to the next one.
#[derive(Debug, Error)]
#[error(
    "this machine is being shut down: the cluster is left as it is, and `coswitch serve` with the same run \
     file takes it over"
)]
pub struct Left;

/// Whether systemd ends all services of this machine, and not this one alone.
pub(crate) fn is_under_way() -> bool {
    let mut asked = Command::new("systemctl");
    let state = command::text(asked.args(["show", "--property=SystemState", "--value"]));
    state.is_ok_and(|state| state.trim() == "stopping")
}
