//! The matrix as a grid: what `explain` shows, and what tests compare with a picture.

use crate::{JobId, Matrix, Seat, alternate::Filler};

/// The matrix as a picture: rows in the order of turns, `>` before the one that has it; in a cell its jobs, each with its
/// number of ranks there, and their memory.
#[must_use]
pub fn grid(matrix: &Matrix, name: impl Fn(JobId) -> String) -> String {
    filled(matrix, &[], name)
}

/// The same, with those who go on on the idle nodes of each row, in brackets.
pub(super) fn filled(matrix: &Matrix, fillers: &[Vec<Filler>], name: impl Fn(JobId) -> String) -> String {
    let nodes: Vec<_> = matrix.cluster().nodes().collect();
    let head = nodes.iter().map(|(node, capacity)| format!("{node} {capacity}"));
    let mut lines = vec![std::iter::once(String::new()).chain(head).collect::<Vec<_>>()];
    for (turn, row) in matrix.rows().iter().enumerate() {
        let mark = if turn == 0 { '>' } else { ' ' };
        let cells = nodes.iter().map(|(node, _)| {
            let ranks = |seat: &Seat| format!("{}*{}", name(seat.spec.id), seat.placement.count_on(*node));
            let jobs: Vec<String> = row.jobs_on(*node).map(ranks).collect();
            if !jobs.is_empty() {
                return format!("{} = {}", jobs.join(" "), row.memory_on(*node));
            }
            let here = fillers.get(turn).into_iter().flatten().filter(|filler| filler.nodes.contains(node));
            let seats = here.filter_map(|filler| matrix.row_of(filler.job)?.seats.get(&filler.job));
            let others: Vec<String> = seats.map(ranks).collect();
            if others.is_empty() { "-".into() } else { format!("({})", others.join(" ")) }
        });
        lines.push(std::iter::once(format!("{mark} {}", row.slot)).chain(cells).collect());
    }
    let widths: Vec<usize> = (0..=nodes.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let print = |line: &Vec<String>| {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join(" | ").trim_end().to_string()
    };
    lines.iter().map(print).collect::<Vec<_>>().join("\n")
}
