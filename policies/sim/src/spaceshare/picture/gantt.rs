//! Gantt chart of a space-sharing run: nodes from top to bottom, time from left to right, each job in its own
//! colour, so that scattered jobs are visible.

use coswitch_policies::spaceshare::allocate::Mesh;

use crate::{
    picture::{Axis, GREY, LEFT, RIGHT, Svg, colour},
    spaceshare::{Blocks, Execution, SpaceJob, Summary},
};

/// With more blocks than this a picture is unreadable and megabytes large: [`super::load()`] suits better.
pub const BLOCKS_MAX: usize = 4000;

const TOP: f64 = 60.0;
const HEIGHT: f64 = 360.0;

/// The picture of a run; `meshes` are the node sets in order, and `number` returns the number of a job in the
/// log. `None` where there are more than [`BLOCKS_MAX`] blocks.
#[must_use]
pub fn gantt(
    title: &str,
    meshes: &[Mesh],
    jobs: &[SpaceJob],
    executions: &[Execution],
    blocks: &Blocks,
    summary: &Summary,
    number: impl Fn(usize) -> u64,
) -> Option<String> {
    let strips: usize = blocks.held.iter().map(|(.., rect)| rect.height as usize).sum();
    if strips > BLOCKS_MAX {
        return None;
    }
    let nodes: u32 = meshes.iter().map(|mesh| mesh.units()).sum();
    let first = jobs.iter().map(|job| job.queued.submitted).min().unwrap_or_default();
    let last = executions.iter().map(|execution| execution.finished).max().unwrap_or_default();
    let about = format!(
        "{} jobs on {nodes} nodes: utilisation {:.1} %, mean wait {:.2} h",
        summary.jobs,
        100.0 * summary.utilisation,
        summary.wait_mean_s / 3600.0
    );
    let mut svg = Svg::new(TOP + HEIGHT + 34.0, title, &about);
    let axis = Axis::new(0.0, last.since(first).as_secs_f64());
    let unit = HEIGHT / f64::from(nodes.max(1));
    for (job, set, rect) in &blocks.held {
        let before: u32 = meshes.iter().take(usize::from(set.0)).map(|mesh| mesh.units()).sum();
        let mesh = meshes.get(usize::from(set.0))?;
        let execution = executions.get(job.0 as usize)?;
        let at = |time: coswitch_policies::SimTime| axis.x(time.since(first).as_secs_f64());
        let (x, width) = (at(execution.started), at(execution.finished) - at(execution.started));
        for row in rect.y..rect.y + rect.height {
            let node = before + row * mesh.width + rect.x;
            let (y, height) = (TOP + f64::from(node) * unit, f64::from(rect.width) * unit);
            let inset = 0.4_f64.min(height / 6.0);
            let size = ((width - 0.4).max(0.3), height - inset);
            let name = format!("job-{}", number(job.0 as usize));
            let tip = format!("{name}: {} nodes", jobs.get(job.0 as usize)?.queued.request.nodes);
            svg.block((x, y), size, colour(job.0), &tip);
            svg.name_block((x, y), size, &name);
        }
    }
    svg.line((LEFT, TOP + HEIGHT), (RIGHT, TOP + HEIGHT), 0.5);
    svg.text((LEFT - 8.0, TOP + 12.0), "end", GREY, "node 0");
    svg.text((LEFT - 8.0, TOP + HEIGHT), "end", GREY, &format!("{}", nodes.saturating_sub(1)));
    axis.draw(&mut svg, TOP, TOP + HEIGHT);
    Some(svg.end())
}
