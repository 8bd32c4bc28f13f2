//! Load chart of a run of any length: nodes in use, stacked by the size of the jobs, and below it the number
//! of waiting jobs.

use std::fmt::Write;

use coswitch_policies::SimTime;

use super::svg::{Axis, GREY, LEFT, RIGHT, Svg};

const BINS: usize = 434;
/// From dark to light; the largest jobs are at the bottom.
const CLASSES: [(&str, u32, &str); 5] = [
    ("more than 128 nodes", u32::MAX, "#1d4a80"),
    ("65 to 128", 128, "#2f6db3"),
    ("17 to 64", 64, "#1f8a78"),
    ("2 to 16", 16, "#c97b45"),
    ("1 node", 1, "#a83a5b"),
];
const TOP: f64 = 66.0;
const USE_HEIGHT: f64 = 230.0;
const WAIT_TOP: f64 = TOP + USE_HEIGHT + 34.0;
const WAIT_HEIGHT: f64 = 84.0;

/// The values of the chart, by columns of equal width in time.
pub(crate) struct LoadChart {
    first: SimTime,
    last: SimTime,
    pub(crate) used: Vec<[f64; CLASSES.len()]>,
    waiting: Vec<f64>,
}

impl LoadChart {
    pub(crate) fn between(first: SimTime, last: SimTime) -> Self {
        Self { first, last, used: vec![[0.0; CLASSES.len()]; BINS], waiting: vec![0.0; BINS] }
    }

    fn bins(&self) -> Bins {
        let length = self.last.since(self.first).as_secs_f64();
        Bins { first: self.first, width: (length / BINS as f64).max(1e-9) }
    }

    pub(crate) fn uses(&mut self, nodes: u32, from: SimTime, to: SimTime) {
        let class = CLASSES.iter().rposition(|(_, most, _)| nodes <= *most).unwrap_or(0);
        let bins = self.bins();
        bins.spread(from, to, |bin, share| self.used[bin][class] += share * f64::from(nodes));
    }

    pub(crate) fn waits(&mut self, from: SimTime, to: SimTime) {
        let bins = self.bins();
        bins.spread(from, to, |bin, share| self.waiting[bin] += share);
    }

    /// `most` is the height of the upper part, in nodes.
    pub(crate) fn draw(&self, title: &str, about: &str, most: f64) -> String {
        let mut svg = Svg::new(WAIT_TOP + WAIT_HEIGHT + 30.0, title, about);
        draw_use(&mut svg, most, &self.used);
        draw_waiting(&mut svg, &self.waiting);
        let length = self.last.since(self.first).as_secs_f64();
        Axis::new(0.0, length).draw(&mut svg, TOP, WAIT_TOP + WAIT_HEIGHT);
        svg.end()
    }
}

/// Columns of equal width in time.
struct Bins {
    first: SimTime,
    width: f64,
}

impl Bins {
    /// Calls `tell` for each column that the span touches, with the part of the column that it covers.
    fn spread(&self, from: SimTime, to: SimTime, mut tell: impl FnMut(usize, f64)) {
        let place = |at: SimTime| at.since(self.first).as_secs_f64() / self.width;
        let (from, to) = (place(from), place(to));
        for bin in (from as usize).min(BINS - 1)..=(to as usize).min(BINS - 1) {
            let share = to.min(bin as f64 + 1.0) - from.max(bin as f64);
            if share > 0.0 {
                tell(bin, share);
            }
        }
    }
}

fn draw_use(svg: &mut Svg, nodes: f64, used: &[[f64; CLASSES.len()]]) {
    let y = |used: f64| TOP + USE_HEIGHT * (1.0 - used / nodes.max(1.0));
    let mut below = vec![0.0; BINS];
    for (class, (_, _, fill)) in CLASSES.iter().enumerate() {
        let above: Vec<f64> = below.iter().zip(used).map(|(below, used)| below + used[class]).collect();
        area(svg, &above, &below, y, fill);
        below = above;
    }
    for share in [0.0, 0.5, 1.0] {
        svg.line((LEFT, y(share * nodes)), (RIGHT, y(share * nodes)), 0.4);
        svg.text((LEFT - 8.0, y(share * nodes) + 4.0), "end", GREY, &format!("{:.0}", share * nodes));
    }
    svg.text((LEFT - 8.0, TOP + USE_HEIGHT * 0.25 + 4.0), "end", GREY, "nodes");
    let mut x = LEFT;
    for (name, _, fill) in CLASSES {
        svg.key(x, TOP + USE_HEIGHT + 22.0, fill, name);
        x += Svg::key_width(name);
    }
}

fn draw_waiting(svg: &mut Svg, waiting: &[f64]) {
    let most = waiting.iter().copied().fold(1.0, f64::max).ceil();
    let y = |jobs: f64| WAIT_TOP + WAIT_HEIGHT * (1.0 - jobs / most);
    area(svg, waiting, &[0.0; BINS], y, GREY);
    svg.line((LEFT, y(0.0)), (RIGHT, y(0.0)), 0.4);
    svg.text((LEFT - 8.0, y(most) + 10.0), "end", GREY, &format!("{most:.0}"));
    svg.text((LEFT - 8.0, y(most / 2.0) + 4.0), "end", GREY, "waiting");
}

/// The area between two step functions.
fn area(svg: &mut Svg, above: &[f64], below: &[f64], y: impl Fn(f64) -> f64, fill: &str) {
    if above.iter().zip(below).all(|(above, below)| above <= below) {
        return;
    }
    let x = |bin: usize| LEFT + (RIGHT - LEFT) * bin as f64 / BINS as f64;
    let mut path = String::new();
    for (bin, value) in above.iter().enumerate() {
        let pen = if bin == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{pen}{:.1} {:.1}H{:.1}", x(bin), y(*value), x(bin + 1));
    }
    for (bin, value) in below.iter().enumerate().rev() {
        let _ = write!(path, "L{:.1} {:.1}H{:.1}", x(bin + 1), y(*value), x(bin));
    }
    let _ = writeln!(svg.body, "  <path d=\"{path}Z\" fill=\"{fill}\"/>");
}
