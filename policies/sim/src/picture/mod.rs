//! Runs as pictures: self-contained SVG that reads on a white and on a black page. Same run, same bytes.
//!
//! | file | what |
//! | --- | --- |
//! | `stays`, `keys` | who is on which node when; which colour is which job |
//! | `svg` | escaping, colours, the axis of time |
//! | `turns` | time sharing: which jobs are in the memory of each node, turn by turn |
//! | `load` | space sharing: nodes in use by job size, and jobs that wait, over a log of any length |
//! | `gantt` | space sharing: every job a block over nodes and time, for a few hundred jobs |

mod gantt;
mod keys;
mod load;
mod stays;
mod svg;
mod turns;

pub use gantt::{BLOCKS_MAX, gantt};
pub use load::load;
pub use turns::turns;
