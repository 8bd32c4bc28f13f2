//! Pictures of a space-sharing run.
//!
//! | file | what |
//! | --- | --- |
//! | `load` | nodes in use by job size, and jobs that wait, over a log of any length |
//! | `gantt` | every job a block over nodes and time, for a few hundred jobs |

mod gantt;
mod load;

pub use gantt::{BLOCKS_MAX, gantt};
pub use load::load;
