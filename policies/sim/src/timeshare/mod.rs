//! Simulated time sharing: the live scheduler against a cost model.
//!
//! | file | what |
//! | --- | --- |
//! | `run` | the loop over time |
//! | `world` | where each job is and how far it got |
//! | `nodes` | what each node holds and how slowly its jobs run |
//! | `faults` | what goes wrong, by seed |
//! | `report` | the journal and what was measured |

mod faults;
mod nodes;
mod report;
mod run;
mod world;

pub use faults::Faults;
pub use report::{SimReport, Step};
pub use run::{SimError, simulate, simulate_telling};
