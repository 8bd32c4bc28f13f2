//! A model of a launch (after paper 004, Fig. 2), fitted to the measured points by least squares.
//!
//! ```text
//! send    = s0 + s1 f + s2 f d + s3 B n        f fragments, B megabytes, n nodes
//! execute = e0 + e1 log2 n + e2 n              d levels of the tree; 0 where there is one node
//! ```
//! A fragment is two rounds of messages to all nodes (XFER-AND-SIGNAL) and part of a third
//! (COMPARE-AND-WRITE), each of which goes down the levels of the tree and up again, and waits for the last
//! of several nodes; the next fragment follows. The report of the end waits for the slowest rank. The terms
//! with `n` are processor time: what one node costs to send to and to start a rank on. Here all nodes share
//! one machine's processors, so that it adds up. With a machine for each node a daemon amid the tree sends to
//! [`RADIX`] others at most, one level after the other, and a rank is started on each node at the same time.
//! What the model takes a machine to be is this one, with the load that it has.

use std::fmt;

use coswitch_dispatcher::ways::RADIX;
use coswitch_policies::{control_tree::ControlTree, launching};

use super::Point;

pub(super) struct Model {
    send: [f64; 4],
    execute: [f64; 3],
}

impl Model {
    pub(super) fn fit(points: &[Point]) -> Self {
        let send = points.iter().map(|point| (send_terms(point.nodes, point.megabytes), point.send));
        let execute = points.iter().map(|point| (execute_terms(point.nodes), point.execute));
        Self { send: fitted(&send.collect::<Vec<_>>()), execute: fitted(&execute.collect::<Vec<_>>()) }
    }

    /// On nodes that share this machine, in seconds.
    fn here(&self, nodes: u32, megabytes: u64) -> f64 {
        dot(&self.send, &send_terms(nodes, megabytes)) + dot(&self.execute, &execute_terms(nodes))
    }

    /// To send and to execute, where each node is a machine.
    pub(super) fn on_machines(&self, nodes: u32, megabytes: u64) -> (f64, f64) {
        let (mut send, mut execute) = (send_terms(nodes, megabytes), execute_terms(nodes));
        send[3] = megabytes as f64 * f64::from(nodes.min(RADIX)) * levels(nodes).max(1.0);
        execute[2] = 1.0;
        (dot(&self.send, &send), dot(&self.execute, &execute))
    }

    /// Mean and largest relative error of the whole launch.
    pub(super) fn error(&self, points: &[Point]) -> (f64, f64) {
        let errors = points.iter().map(|point| {
            let measured = point.send + point.execute;
            ((self.here(point.nodes, point.megabytes) - measured) / measured).abs()
        });
        let errors: Vec<f64> = errors.collect();
        (errors.iter().sum::<f64>() / errors.len() as f64, errors.iter().copied().fold(0.0, f64::max))
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |value: f64| value * 1e3;
        let [s0, s1, s2, s3] = self.send.map(ms);
        let [e0, e1, e2] = self.execute.map(ms);
        write!(
            f,
            "ms: send {s0:.2} + fragments ({s1:.2} + {s2:.2} levels) + {s3:.3} MB nodes, execute {e0:.1} + \
             {e1:.1} log2 nodes + {e2:.2} nodes"
        )
    }
}

/// Levels of daemons below the master; one node waits for no other.
fn levels(nodes: u32) -> f64 {
    if nodes == 1 {
        return 0.0;
    }
    f64::from(ControlTree::new(RADIX, nodes, Default::default()).depth())
}

fn send_terms(nodes: u32, megabytes: u64) -> [f64; 4] {
    let fragments = f64::from(launching::fragments(megabytes * 1_000_000));
    [1.0, fragments, fragments * levels(nodes), megabytes as f64 * f64::from(nodes)]
}

fn execute_terms(nodes: u32) -> [f64; 3] {
    [1.0, f64::from(nodes).log2(), f64::from(nodes)]
}

fn dot<const N: usize>(a: &[f64; N], b: &[f64; N]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The coefficients, none of them negative, with the least squares of relative errors. A term whose
/// coefficient would be negative is left out, the most negative one first.
fn fitted<const N: usize>(samples: &[([f64; N], f64)]) -> [f64; N] {
    let mut used = [true; N];
    loop {
        let found = least_squares(samples, used);
        let worst = (0..N).filter(|at| used[*at]).min_by(|a, b| found[*a].total_cmp(&found[*b]));
        match worst.filter(|at| found[*at] < 0.0) {
            Some(at) => used[at] = false,
            None => return found,
        }
    }
}

/// By the normal equations, which elimination with pivots solves.
fn least_squares<const N: usize>(samples: &[([f64; N], f64)], used: [bool; N]) -> [f64; N] {
    let mut matrix = [[0.0; N]; N];
    let mut right = [0.0; N];
    for (terms, value) in samples {
        let weight = 1.0 / (value * value);
        for row in (0..N).filter(|row| used[*row]) {
            right[row] += weight * terms[row] * value;
            for column in (0..N).filter(|column| used[*column]) {
                matrix[row][column] += weight * terms[row] * terms[column];
            }
        }
    }
    for at in 0..N {
        let pivot = (at..N).max_by(|a, b| matrix[*a][at].abs().total_cmp(&matrix[*b][at].abs()));
        let pivot = pivot.expect("there is a row");
        // A term that is left out, or says nothing that others do not.
        if matrix[pivot][at].abs() < 1e-12 {
            continue;
        }
        matrix.swap(at, pivot);
        right.swap(at, pivot);
        let (base, value) = (matrix[at], right[at]);
        for row in (0..N).filter(|row| *row != at) {
            let factor = matrix[row][at] / base[at];
            matrix[row].iter_mut().zip(base).for_each(|(cell, above)| *cell -= factor * above);
            right[row] -= factor * value;
        }
    }
    std::array::from_fn(|at| if matrix[at][at].abs() < 1e-12 { 0.0 } else { right[at] / matrix[at][at] })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster that behaves as the model says.
    fn point(nodes: u32, megabytes: u64) -> Point {
        let send = dot(&[0.004, 0.001, 0.002, 0.0005], &send_terms(nodes, megabytes));
        let execute = dot(&[0.03, 0.002, 0.004], &execute_terms(nodes));
        Point { nodes, megabytes, send, execute }
    }

    #[test]
    fn the_coefficients_of_exact_points_are_found_and_predict_others() {
        let points: Vec<Point> =
            [1, 2, 4, 8, 16].iter().flat_map(|nodes| [4, 8, 12].map(|size| point(*nodes, size))).collect();
        let model = Model::fit(&points);
        let others = [point(32, 12), point(64, 4)];
        let (mean, most) = model.error(&others);
        assert!(mean <= most && most < 1e-6, "{most}: {model}");
    }

    #[test]
    fn no_coefficient_is_negative() {
        // It falls with the nodes.
        let samples: Vec<([f64; 3], f64)> =
            (1..6).map(|nodes| (execute_terms(nodes), 1.0 - 0.1 * f64::from(nodes))).collect();
        assert!(fitted(&samples).iter().all(|coefficient| *coefficient >= 0.0));
    }

    #[test]
    fn machines_of_their_own_cost_levels_and_not_a_share_of_the_processors() {
        let points: Vec<Point> =
            [1, 2, 4, 8, 16].iter().flat_map(|nodes| [4, 8, 12].map(|size| point(*nodes, size))).collect();
        let model = Model::fit(&points);
        let [(few, _), (many, _)] = [64, 16_384].map(|nodes| model.on_machines(nodes, 12));
        assert!(few < many && many < 3.0 * few, "{few} {many}");
    }
}
