//! Workload model of Lublin and Feitelson (*The workload on parallel supercomputers: modeling the
//! characteristics of rigid jobs*, JPDC 63(11), 2003; technical report 1999): rigid jobs of two kinds, batch
//! and interactive.
//!
//! | property | distribution |
//! | --- | --- |
//! | size | 1 with probability `serial`; else 2^x, x two-stage uniform, often rounded (`power_of_two`) |
//! | run time | e^x s, x hyper-gamma; the first gamma has probability `pa · size + pb`; at most e^12 s |
//! | arrival | e^x s after the last of its kind, x gamma (at most 13), stretched by the daily cycle |
//!
//! The daily cycle divides the day into 48 buckets, whose weights are the density of a gamma distribution
//! that begins at 5:30. An interval between two arrivals is paid for with weights, bucket by bucket, so it
//! takes longer at night. The parameters are the published ones. Each kind draws from its own sequence; the
//! sequences are merged by arrival, as in the model.

use serde::{Deserialize, Serialize};

use super::swf::{Comment, Log, Record, Status};
use crate::{Seed, distributions::gamma_cdf};

const BUCKETS: usize = 48;
const BUCKET_SECONDS: f64 = 1800.0;
/// The bucket in which the gamma distribution of the cycle begins.
const CYCLE_START: usize = 11;
/// Upper limits of the logarithms of a run time and of an interval.
const RUN_LOG_MAX: f64 = 12.0;
const INTERVAL_LOG_MAX: f64 = 13.0;

/// The parameters of one kind of job, named as in the paper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kind {
    /// Probability of one node.
    pub serial: f64,
    /// Probability of a power of two, among jobs that are not serial by this draw.
    pub power_of_two: f64,
    /// Logarithm (base 2) of the smallest, the middle and the largest size.
    pub sizes: [f64; 3],
    /// Probability of the lower stage.
    pub lower: f64,
    /// Shape and scale of the two gammas of the run time's logarithm.
    pub run: [(f64, f64); 2],
    /// Slope, and value at size 0, of the probability of the first gamma.
    pub first: (f64, f64),
    /// Shape and scale of the interval's logarithm; the shape for all hours of the day.
    pub interval: (f64, f64),
    /// Shape and scale of the daily cycle, in buckets.
    pub cycle: (f64, f64),
}

/// Batch jobs as published.
pub const BATCH: Kind = Kind {
    serial: 0.2927,
    power_of_two: 0.6686,
    sizes: [1.2, 5.0, 7.0],
    lower: 0.875,
    run: [(6.57, 0.823), (639.1, 0.0156)],
    first: (-0.003, 0.6986),
    interval: (6.0415 * 1.0519, 0.8531),
    cycle: (6.1271, 5.2740),
};

/// Interactive jobs as published.
pub const INTERACTIVE: Kind = Kind {
    serial: 0.1541,
    power_of_two: 0.625,
    sizes: [1.0, 3.0, 5.5],
    lower: 0.705,
    run: [(3.8351, 0.6605), (7.073, 0.6856)],
    first: (-0.0118, 0.9156),
    interval: (6.5510 * 0.9797, 0.6621),
    cycle: (8.9186, 3.6680),
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub jobs: u32,
    /// Nodes of the machine. Sizes are scaled as the authors advise: `high` is log2 of this for batch jobs
    /// and 1.5 less for interactive ones; `medium` keeps its distance from `high` (2 and 2.5).
    pub nodes: u32,
    pub interactive: bool,
    /// Divides the intervals between arrivals: 2 is twice the load.
    pub load: f64,
}

impl Default for Settings {
    /// The machine of the model: 128 nodes.
    fn default() -> Self {
        Self { jobs: 10_000, nodes: 128, interactive: true, load: 1.0 }
    }
}

/// The workload of `seed` in the Standard Workload Format: queue 0 is interactive, queue 1 batch.
#[must_use]
pub fn generate(seed: u64, shape: &Settings) -> Log {
    let mut root = Seed::new(seed);
    let high = libm::log2(f64::from(shape.nodes.max(1)));
    let batch = Kind { sizes: [BATCH.sizes[0].min(high), (high - 2.0).max(0.0), high], ..BATCH };
    let top = (high - 1.5).max(0.0);
    let interactive =
        Kind { sizes: [INTERACTIVE.sizes[0].min(top), (top - 2.5).max(0.0), top], ..INTERACTIVE };
    let mut streams = vec![Stream::new(batch, 1, root.next_u64(), shape)];
    if shape.interactive {
        streams.push(Stream::new(interactive, 0, root.next_u64(), shape));
    }
    let mut records = Vec::with_capacity(shape.jobs as usize);
    for number in 1..=u64::from(shape.jobs) {
        let next = streams.iter_mut().min_by(|a, b| a.at.total_cmp(&b.at)).expect("there are batch jobs");
        records.push(next.job(number, shape.nodes));
    }
    Log { comments: header(seed, shape), records }
}

fn header(seed: u64, shape: &Settings) -> Vec<Comment> {
    let lines = [
        "; Version: 2.2".to_owned(),
        "; Computer: a model".to_owned(),
        format!("; Note: Lublin-Feitelson 1999, seed {seed}, load {}", shape.load),
        format!("; MaxJobs: {}", shape.jobs),
        format!("; MaxNodes: {}", shape.nodes),
        "; Queue: 0 interactive".to_owned(),
        "; Queue: 1 batch".to_owned(),
    ];
    lines.into_iter().map(|text| Comment { before: 0, text }).collect()
}

/// The jobs of one kind, in order.
struct Stream {
    kind: Kind,
    queue: u32,
    seed: Seed,
    load: f64,
    weights: [f64; BUCKETS],
    /// Arrival of the next job, in seconds since midnight of the first day.
    at: f64,
    bucket: usize,
    /// Weight spent in the current bucket so far.
    paid: f64,
}

impl Stream {
    fn new(kind: Kind, queue: u32, seed: u64, shape: &Settings) -> Self {
        let load = if shape.load > 0.0 { shape.load } else { 1.0 };
        let weights = weights(kind.cycle);
        let mut stream =
            Self { kind, queue, seed: Seed::new(seed), load, weights, at: 0.0, bucket: 0, paid: 0.0 };
        stream.go_on();
        stream
    }

    /// Moves to the next arrival: pays its interval with the weights of the buckets that it passes.
    fn go_on(&mut self) {
        let (shape, scale) = self.kind.interval;
        let interval = libm::exp(below(INTERVAL_LOG_MAX, || self.seed.gamma(shape, scale))) / self.load;
        let before = self.paid / self.weights[self.bucket];
        self.paid += interval / BUCKET_SECONDS;
        let mut buckets = 0.0;
        while self.paid > self.weights[self.bucket] {
            self.paid -= self.weights[self.bucket];
            self.bucket = (self.bucket + 1) % BUCKETS;
            buckets += 1.0;
        }
        let after = self.paid / self.weights[self.bucket];
        self.at += BUCKET_SECONDS * (buckets + after - before);
    }

    fn job(&mut self, number: u64, nodes_max: u32) -> Record {
        let submit = self.at as u64;
        let size = self.size().clamp(1, nodes_max.max(1));
        let run = self.run_time(size) as u64;
        self.go_on();
        Record {
            number,
            submit,
            run: Some(run),
            processors: Some(size),
            requested_processors: Some(size),
            status: Some(Status::Completed),
            queue: Some(self.queue),
            ..Record::default()
        }
    }

    fn size(&mut self) -> u32 {
        let u = self.seed.unit();
        if u <= self.kind.serial {
            return 1;
        }
        let [low, medium, high] = self.kind.sizes;
        let lower = self.seed.unit() <= self.kind.lower;
        let (from, to) = if lower { (low, medium) } else { (medium, high) };
        let log = from + (to - from) * self.seed.unit();
        let log = if u <= self.kind.serial + self.kind.power_of_two { libm::floor(log + 0.5) } else { log };
        libm::floor(libm::pow(2.0, log) + 0.5) as u32
    }

    fn run_time(&mut self, size: u32) -> f64 {
        let (slope, base) = self.kind.first;
        let p = (slope * f64::from(size) + base).clamp(0.0, 1.0);
        libm::exp(below(RUN_LOG_MAX, || {
            let (shape, scale) = self.kind.run[usize::from(self.seed.unit() > p)];
            self.seed.gamma(shape, scale)
        }))
    }
}

/// Draws until the value is not above `most`.
fn below(most: f64, mut draw: impl FnMut() -> f64) -> f64 {
    loop {
        let value = draw();
        if value <= most {
            return value;
        }
    }
}

/// The weight of each bucket of the day; 1 on average.
fn weights((shape, scale): (f64, f64)) -> [f64; BUCKETS] {
    let mut weights = [0.0; BUCKETS];
    for index in CYCLE_START..BUCKETS + CYCLE_START {
        let at = index as f64;
        weights[(index - 1) % BUCKETS] =
            gamma_cdf(at + 0.5, shape, scale) - gamma_cdf(at - 0.5, shape, scale);
    }
    let mean = weights.iter().sum::<f64>() / BUCKETS as f64;
    weights.map(|weight| weight / mean)
}

#[cfg(test)]
mod tests;
