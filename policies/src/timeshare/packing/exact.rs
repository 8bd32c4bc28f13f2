//! Exact packing by branch and bound: the fewest rows, then the least pairing cost.
//!
//! Each branch gives the next job, in the order given (largest first), a row and nodes in it. Symmetric
//! choices are tried once: rows that look alike, and nodes of a row that look alike. A gang whose ranks do
//! not divide evenly among its nodes gets only the nodes of [`plan_placement`]. A branch is given up when the
//! rows that it has, or must come to by the memory and cells still wanted, are more than those of the best so
//! far, or as many at no less cost. The bound of the cost is that of one node with all the demand.
//!
//! The search is bounded in visits. It goes depth first and its first leaf is first-fit-decreasing, so that
//! the answer is never worse than that, whatever the bound.

use super::pairing::{Demand, Fractions};
use crate::{
    JobSpec, Matrix, MemoryRule, Placement,
    placement::{FreeCapacity, Shape, plan_placement},
};

/// More jobs at once are packed first fit: the search is as deep as there are jobs.
const JOBS_MAX: usize = 200;

/// A job to place.
struct Item<'a> {
    job: &'a JobSpec,
    shape: Shape,
    /// Ranks on each node, where all nodes get as many.
    even: Option<u32>,
}

/// A node of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    left: FreeCapacity,
    demand: Demand,
}

/// One row as the search fills it.
type Bin = Vec<Cell>;

/// Each job's row, counted from the front, and ranks by node.
type Choices = Vec<(usize, Vec<u32>)>;

struct Search<'a> {
    items: Vec<Item<'a>>,
    fractions: &'a Fractions,
    memory: MemoryRule,
    max_per_cell: Option<u32>,
    empty: Bin,
    /// Memory and cells that the jobs from each on want.
    wanted: Vec<(u64, u64)>,
    visits_left: u32,
    bins: Vec<Bin>,
    cost: u64,
    chosen: Choices,
    best: Option<(usize, u64, Choices)>,
    /// Rows and cost of no packing are below this.
    floor: (usize, u64),
}

/// Where each of `jobs` goes: its row, which may be new, and its placement. `None` where there are too many
/// jobs for a search. Rows before `first` are tried last.
pub(super) fn search<'a>(
    matrix: &Matrix,
    jobs: &'a [JobSpec],
    first: usize,
    fractions: &Fractions,
    visits_max: u32,
) -> Option<Vec<(&'a JobSpec, usize, Placement)>> {
    if jobs.len() > JOBS_MAX {
        return None;
    }
    let limits = matrix.limits();
    let items = jobs.iter().map(|job| {
        let shape = matrix.shape_of(job)?;
        let even = (shape.width * shape.most == job.ranks).then_some(shape.most);
        Some(Item { job, shape, even })
    });
    let items: Vec<Item<'a>> = items.collect::<Option<_>>()?;
    let bins: Vec<Bin> = (0..matrix.rows().len()).map(|row| bin_of(matrix, row, fractions)).collect();
    let empty = empty_bin(matrix);
    let cost = bins.iter().flatten().map(|cell| cell.demand.cost()).sum();
    let there = bins.iter().flatten().map(|cell| cell.demand);
    let to_come = items.iter().map(|item| {
        let one = Demand::default().and(fractions.of(item.job.id));
        one.times(u64::from(item.shape.width))
    });
    let all = there.chain(to_come).fold(Demand::default(), Demand::plus);
    let mut search = Search {
        wanted: wanted(&items),
        items,
        fractions,
        memory: limits.memory,
        max_per_cell: limits.max_per_cell,
        empty,
        visits_left: visits_max.max(u32::try_from(jobs.len()).unwrap_or(u32::MAX).saturating_add(1)),
        bins,
        cost,
        chosen: Vec::new(),
        best: None,
        floor: (0, 0),
    };
    search.floor = (search.rows_at_least(0), all.cost());
    search.visit(0, first);
    let (_, _, choices) = search.best?;
    let placed = jobs.iter().zip(choices);
    Some(placed.map(|(job, (row, shares))| (job, row, Placement::from_shares(&shares))).collect())
}

impl Search<'_> {
    /// Places the job `at` and all behind it.
    fn visit(&mut self, at: usize, first: usize) {
        if self.visits_left == 0 {
            return;
        }
        self.visits_left -= 1;
        if self.is_hopeless(at) {
            return;
        }
        if at == self.items.len() {
            self.best = Some((self.bins.len(), self.cost, self.chosen.clone()));
            return;
        }
        let rows = self.bins.len();
        let mut tried: Vec<usize> = Vec::new();
        for row in (first.min(rows)..rows).chain(0..first.min(rows)) {
            if tried.iter().all(|other| self.bins[*other] != self.bins[row]) {
                tried.push(row);
                self.branch(at, row, first);
            }
        }
        self.bins.push(self.empty.clone());
        if !self.is_hopeless(at) {
            self.branch(at, rows, first);
        }
        self.bins.pop();
    }

    /// Tries all nodes that `row` may give to the job `at`, the emptiest first.
    fn branch(&mut self, at: usize, row: usize, first: usize) {
        let Item { job, shape, even } = self.items[at];
        let nodes: Vec<FreeCapacity> = self.bins[row].iter().map(|cell| cell.left).collect();
        let Some(ranks) = even else {
            if let Some(placement) = plan_placement(job, shape, &nodes, self.memory) {
                let shares = (0..).take(nodes.len()).map(|node| placement.count_on(crate::NodeId(node)));
                self.descend(at, row, first, shares.collect());
            }
            return;
        };
        let needs = job.memory_of(ranks);
        let holds =
            |cell: &Cell| cell.left.open && (self.memory == MemoryRule::Ignored || cell.left.free >= needs);
        let mut nodes: Vec<usize> = (0..nodes.len()).filter(|node| holds(&self.bins[row][*node])).collect();
        let look = |node: &usize| {
            let Cell { left, demand } = self.bins[row][*node];
            (left.jobs, std::cmp::Reverse(left.free), demand)
        };
        nodes.sort_by_key(|node| (look(node), *node));
        let alike: Vec<Vec<usize>> =
            nodes.chunk_by(|a, b| look(a) == look(b)).map(<[usize]>::to_vec).collect();
        let mut shares = vec![0; self.empty.len()];
        self.choose(at, row, first, &alike, (shape.width as usize, ranks), &mut shares);
    }

    /// Takes nodes from the first class of `alike`, as many as may be first, then from the others.
    fn choose(
        &mut self,
        at: usize,
        row: usize,
        first: usize,
        alike: &[Vec<usize>],
        (width, ranks): (usize, u32),
        shares: &mut Vec<u32>,
    ) {
        if width == 0 {
            return self.descend(at, row, first, shares.clone());
        }
        let Some((class, others)) = alike.split_first() else { return };
        let behind: usize = others.iter().map(Vec::len).sum();
        for count in (width.saturating_sub(behind)..=width.min(class.len())).rev() {
            class[..count].iter().for_each(|node| shares[*node] = ranks);
            self.choose(at, row, first, others, (width - count, ranks), shares);
            class[..count].iter().for_each(|node| shares[*node] = 0);
            if self.visits_left == 0 {
                return;
            }
        }
    }

    /// Places the job `at` by `shares` in `row` and goes on with the next.
    fn descend(&mut self, at: usize, row: usize, first: usize, shares: Vec<u32>) {
        let (bin, cost) = (self.bins[row].clone(), self.cost);
        let job = self.items[at].job;
        let fraction = self.fractions.of(job.id);
        for (cell, ranks) in self.bins[row].iter_mut().zip(&shares).filter(|(_, ranks)| **ranks > 0) {
            self.cost -= cell.demand.cost();
            cell.demand = cell.demand.and(fraction);
            self.cost += cell.demand.cost();
            cell.left.free.0 = cell.left.free.0.saturating_sub(job.memory_of(*ranks).0);
            cell.left.jobs += 1;
            cell.left.open = self.max_per_cell.is_none_or(|max| cell.left.jobs < max);
        }
        self.chosen.push((row, shares));
        self.visit(at + 1, first);
        self.chosen.pop();
        self.bins[row] = bin;
        self.cost = cost;
    }

    /// Whether nothing below here is better than the best.
    fn is_hopeless(&self, at: usize) -> bool {
        let Some((rows, cost, _)) = &self.best else { return false };
        let least = self.rows_at_least(at);
        least > *rows || (least == *rows && self.cost >= *cost) || (*rows, *cost) == self.floor
    }

    /// How many rows there must be in the end, by the memory and the cells that the jobs from `at` on want.
    fn rows_at_least(&self, at: usize) -> usize {
        let (memory, cells) = self.wanted[at];
        let more = |wanted: u64, free: u64, of_empty: u64| {
            wanted.saturating_sub(free).checked_div(of_empty).map_or(0, |_| {
                usize::try_from(wanted.saturating_sub(free).div_ceil(of_empty)).unwrap_or(usize::MAX)
            })
        };
        let mut rows = 0;
        if self.memory == MemoryRule::MustFit {
            let free = |bin: &Bin| bin.iter().fold(0u64, |sum, cell| sum.saturating_add(cell.left.free.0));
            let all = self.bins.iter().fold(0u64, |sum, bin| sum.saturating_add(free(bin)));
            rows = more(memory, all, free(&self.empty));
        }
        if let Some(max) = self.max_per_cell {
            let open = |bin: &Bin| -> u64 {
                bin.iter().map(|cell| u64::from(max.saturating_sub(cell.left.jobs))).sum()
            };
            rows = rows.max(more(cells, self.bins.iter().map(open).sum(), open(&self.empty)));
        }
        self.bins.len() + rows
    }
}

/// What the jobs from each on want: memory and cells.
fn wanted(items: &[Item<'_>]) -> Vec<(u64, u64)> {
    let mut wanted = vec![(0u64, 0u64); items.len() + 1];
    for (at, item) in items.iter().enumerate().rev() {
        let (memory, cells) = wanted[at + 1];
        wanted[at] = (memory.saturating_add(item.job.memory().0), cells + u64::from(item.shape.width));
    }
    wanted
}

fn bin_of(matrix: &Matrix, row: usize, fractions: &Fractions) -> Bin {
    let mut bin: Bin = matrix
        .free_capacities(row)
        .into_iter()
        .map(|left| Cell { left, demand: Demand::default() })
        .collect();
    for assignment in matrix.row(row).assignments() {
        for node in assignment.placement.nodes() {
            let cell = &mut bin[node.0 as usize];
            cell.demand = cell.demand.and(fractions.of(assignment.spec.id));
        }
    }
    bin
}

fn empty_bin(matrix: &Matrix) -> Bin {
    let left = |free| FreeCapacity { open: matrix.limits().max_per_cell != Some(0), jobs: 0, free };
    let cells =
        matrix.cluster().nodes().map(|(_, free)| Cell { left: left(free), demand: Demand::default() });
    cells.collect()
}
