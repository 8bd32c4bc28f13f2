//! The matrix as a grid of text: `explain` shows it, and tests compare it with a picture.

use crate::{Assignment, Bytes, JobId, Matrix, NodeId, timeshare::alternate::BackfilledJob};

/// With at most as many nodes as this, each has a column of its own.
const COLUMNS: usize = 8;

/// The matrix as a grid: rows in the order of turns, `>` before the row that has the turn; in a cell its
/// jobs, each with its number of ranks there, and their memory. On many nodes, neighbours that hold the same
/// share a column.
#[must_use]
pub fn grid(matrix: &Matrix, name: impl Fn(JobId) -> String) -> String {
    with_backfilled(matrix, &[], name)
}

/// The same, with the backfilled jobs of each row in brackets.
pub(super) fn with_backfilled(
    matrix: &Matrix,
    backfilled: &[Vec<BackfilledJob>],
    name: impl Fn(JobId) -> String,
) -> String {
    let slots = matrix.rows().enumerate();
    let slots = slots.map(|(turn, row)| format!("{} {}", if turn == 0 { '>' } else { ' ' }, row.slot));
    let mut columns = vec![std::iter::once(String::new()).chain(slots).collect::<Vec<_>>()];
    let cells =
        |node| (0..matrix.rows().len()).map(|turn| cell(matrix, backfilled, turn, node, &name)).collect();
    let nodes: Vec<_> =
        matrix.cluster().nodes().map(|(node, capacity)| (node, capacity, cells(node))).collect();
    let alike = |a: &(NodeId, Bytes, Vec<String>), b: &(NodeId, Bytes, Vec<String>)| {
        nodes.len() > COLUMNS && a.1 == b.1 && a.2 == b.2
    };
    for group in nodes.chunk_by(alike) {
        let (first, capacity, cells) = &group[0];
        let head = match group {
            [_, .., (last, ..)] => format!("{first} to {last}, {capacity} each"),
            _ => format!("{first} {capacity}"),
        };
        columns.push(std::iter::once(head).chain(cells.iter().cloned()).collect());
    }
    let width = |column: &Vec<String>| column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let print = |line: usize| {
        let cells = columns.iter().zip(&widths).map(|(column, width)| format!("{:width$}", column[line]));
        cells.collect::<Vec<_>>().join(" | ").trim_end().to_string()
    };
    (0..=matrix.rows().len()).map(print).collect::<Vec<_>>().join("\n")
}

fn cell(
    matrix: &Matrix,
    backfilled: &[Vec<BackfilledJob>],
    turn: usize,
    node: NodeId,
    name: &impl Fn(JobId) -> String,
) -> String {
    let row = matrix.row(turn);
    let ranks = |assignment: &Assignment| {
        format!("{}*{}", name(assignment.spec.id), assignment.placement.count_on(node))
    };
    let jobs: Vec<String> = row.jobs_on(node).map(ranks).collect();
    if !jobs.is_empty() {
        return format!("{} = {}", jobs.join(" "), row.memory_on(node));
    }
    let here =
        backfilled.get(turn).into_iter().flatten().filter(|backfilled| backfilled.nodes.contains(&node));
    let assignments = here.filter_map(|backfilled| matrix.assignment_of(backfilled.job));
    let others: Vec<String> = assignments.map(ranks).collect();
    if others.is_empty() { "-".into() } else { format!("({})", others.join(" ")) }
}
