//! Shared parts of the pictures: self-contained SVG that is readable on a white and on a black page. The same
//! run gives the same bytes.
//!
//! | file | what |
//! | --- | --- |
//! | `svg` | escaping, colours, the axis of time |
//! | `load` | the chart of nodes in use and of jobs that wait |

mod load;
mod svg;

pub(crate) use load::LoadChart;
pub(crate) use svg::{Axis, GREY, LEFT, RIGHT, Svg, colour};
