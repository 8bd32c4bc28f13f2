//! Rectangles of units, and the extent of a machine.

use serde::{Deserialize, Serialize};

/// The units `x .. x + width` by `y .. y + height`. On a line of nodes `y` is 0 and the height 1; on SMP
/// nodes `x` counts nodes and `y` CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rect {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

impl Rect {
    /// `count` neighbours on a line.
    #[must_use]
    pub const fn run(first: u32, count: u32) -> Self {
        Self { x: first, y: 0, width: count, height: 1 }
    }

    #[must_use]
    pub const fn area(&self) -> u32 {
        self.width * self.height
    }

    /// Whether the two have a unit in common.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.x < other.x + other.width
            && other.x < self.x + self.width
            && self.y < other.y + other.height
            && other.y < self.y + self.height
    }

    /// Whether all of `other` lies in it.
    #[must_use]
    pub const fn contains(&self, other: &Self) -> bool {
        self.x <= other.x
            && self.y <= other.y
            && other.x + other.width <= self.x + self.width
            && other.y + other.height <= self.y + self.height
    }

    /// Its corner units: upper left, upper right, lower right, lower left.
    #[must_use]
    pub const fn corners(&self) -> [(u32, u32); 4] {
        let (right, low) = (self.x + self.width - 1, self.y + self.height - 1);
        [(self.x, self.y), (right, self.y), (right, low), (self.x, low)]
    }
}

/// The extent of a machine: `width × height` units, numbered row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mesh {
    pub width: u32,
    pub height: u32,
}

impl Mesh {
    /// `nodes` nodes side by side.
    #[must_use]
    pub const fn line(nodes: u32) -> Self {
        Self { width: nodes, height: 1 }
    }

    #[must_use]
    pub const fn units(&self) -> u32 {
        self.width * self.height
    }

    #[must_use]
    pub const fn whole(&self) -> Rect {
        Rect { x: 0, y: 0, width: self.width, height: self.height }
    }

    /// The unit of this number.
    #[must_use]
    pub const fn unit(self, number: u32) -> Rect {
        Rect { x: number % self.width, y: number / self.width, width: 1, height: 1 }
    }

    /// The numbers of the units of `rect`, row by row.
    pub fn numbers(self, rect: Rect) -> impl Iterator<Item = u32> {
        let row = move |y: u32| (rect.x..rect.x + rect.width).map(move |x| y * self.width + x);
        (rect.y..rect.y + rect.height).flat_map(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_that_only_touch_do_not_overlap() {
        let rect = |x, y, width, height| Rect { x, y, width, height };
        assert!(!rect(0, 0, 2, 2).overlaps(&rect(2, 0, 2, 2)));
        assert!(!rect(0, 0, 2, 2).overlaps(&rect(0, 2, 2, 2)));
        assert!(rect(0, 0, 3, 3).overlaps(&rect(2, 2, 2, 2)));
        assert!(
            rect(0, 0, 3, 3).contains(&rect(1, 1, 2, 2)) && !rect(0, 0, 2, 2).contains(&rect(1, 1, 2, 2))
        );
    }

    #[test]
    fn units_are_numbered_row_by_row() {
        let mesh = Mesh { width: 4, height: 3 };
        let numbers: Vec<u32> = mesh.numbers(Rect { x: 1, y: 1, width: 2, height: 2 }).collect();
        assert_eq!(numbers, [5, 6, 9, 10]);
    }
}
