//! Colours and names of jobs in the key of a picture.

use std::collections::BTreeMap;

use coswitch_policies::{JobId, metrics::JobTimes};

use crate::{
    SimJob, SimReport,
    picture::{GREY, LEFT, RIGHT, Svg, colour},
};

/// Of many jobs those with the most node time have their own colours and are named.
pub(super) struct Keys {
    pub(super) names: BTreeMap<JobId, String>,
    /// The named jobs, in order.
    named: Vec<JobId>,
    places: BTreeMap<JobId, u32>,
}

impl Keys {
    /// One for each colour.
    const NAMED: usize = 12;

    pub(super) fn of(jobs: &[SimJob], report: &SimReport) -> Self {
        let names = jobs.iter().map(|job| (job.spec.id, job.spec.name.to_string())).collect();
        let used: BTreeMap<JobId, f64> = report.times.jobs.iter().map(|job| (job.job, used(job))).collect();
        let used = |job: &JobId| used.get(job).copied().unwrap_or_default();
        let mut order: Vec<JobId> = jobs.iter().map(|job| job.spec.id).collect();
        if order.len() > Self::NAMED {
            order.sort_by(|a, b| used(b).total_cmp(&used(a)).then(a.cmp(b)));
        }
        let places = order.iter().copied().zip(0..).collect();
        order.truncate(Self::NAMED);
        Self { names, named: order, places }
    }

    pub(super) fn colour(&self, job: JobId) -> &'static str {
        colour(self.places.get(&job).copied().unwrap_or_default())
    }

    /// The entries of the key with their positions, line by line.
    fn places(&self) -> Vec<(Option<JobId>, String, f64, f64)> {
        let named =
            self.named.iter().map(|job| (Some(*job), self.names.get(job).cloned().unwrap_or_default()));
        let others = self.names.len() - self.named.len();
        let rest = (others > 0).then(|| (None, format!("and {others} that used less")));
        let (mut x, mut line) = (LEFT, 0.0);
        let place = |(job, text): (Option<JobId>, String)| {
            let width = Svg::key_width(&text);
            if x > LEFT && x + width > RIGHT {
                (x, line) = (LEFT, line + 1.0);
            }
            x += width;
            (job, text, x - width, line)
        };
        named.chain(rest).map(place).collect()
    }

    pub(super) fn lines(&self) -> f64 {
        self.places().last().map_or(1.0, |(.., line)| line + 1.0)
    }

    pub(super) fn draw(&self, svg: &mut Svg, top: f64) {
        for (job, text, x, line) in self.places() {
            let y = top + 18.0 * line;
            match job {
                Some(job) => svg.key(x, y, self.colour(job), &text),
                None => svg.text((x, y), "start", GREY, &text),
            }
        }
    }
}

/// Node time of a job.
fn used(job: &JobTimes) -> f64 {
    job.active.iter().map(|span| span.length().as_secs_f64()).sum::<f64>() * job.nodes.len() as f64
}
