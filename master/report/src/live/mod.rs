//! The live view of a run, without a terminal: its current state ([`View`]) and its log lines ([`line`]).

mod lines;
mod view;

pub use lines::line;
pub(crate) use lines::text;
pub use view::{JobState, JobView, View};
