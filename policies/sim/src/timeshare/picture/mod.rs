//! Picture of a time-sharing run.
//!
//! | file | what |
//! | --- | --- |
//! | `turns` | which jobs are in the memory of each node, turn by turn |
//! | `load` | the load of the machine instead, where there are too many turns to draw |
//! | `stays`, `keys` | who is on which node when; which colour is which job |

mod keys;
mod load;
mod stays;
mod turns;

pub use turns::turns;
