//! Picture of a time-sharing run.
//!
//! | file | what |
//! | --- | --- |
//! | `turns` | which jobs are in the memory of each node, turn by turn |
//! | `load` | the load chart instead, where there are too many turns to draw |
//! | `stays`, `keys` | the stays of jobs on nodes; the key of colours |

mod keys;
mod load;
mod stays;
mod turns;

pub use turns::turns;
