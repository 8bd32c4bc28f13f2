//! The six cases in which M2DB breaks a block into buddies (paper 002 §2.4.2).
//!
//! `W2` and `H2` are the largest powers of two that do not exceed width and height:
//!
//! | case | block | buddies |
//! | --- | --- | --- |
//! | 1 | square of a power of two | four equal squares |
//! | 2 | both powers of two, higher than wide | upper and lower half |
//! | 3 | both powers of two, wider than high | left and right half |
//! | 4 | only the height is a power of two | `W2` and the rest of the width |
//! | 5 | only the width is a power of two | `H2` and the rest of the height |
//! | 6 | neither | `W2 × H2` and the three rests |
//!
//! The paper requires `h ≠ w` in case 6, which leaves out squares such as 3 × 3; here they break in the same
//! way. The paper prints the first buddy of case 2 with the width `2`, which must be `W2`.

use crate::spaceshare::allocate::Rect;

/// The largest power of two not above `n`, which is at least 1.
const fn power_below(n: u32) -> u32 {
    1 << n.ilog2()
}

/// The buddies of `block`, clockwise from the upper left; they cover it and do not overlap.
///
/// # Panics
/// Where the block is a single node.
pub(super) fn buddies(block: Rect) -> Vec<Rect> {
    let Rect { width, height, .. } = block;
    assert!(block.area() > 1, "a single node has no parts");
    let (w2, h2) = (power_below(width), power_below(height));
    match (width == w2, height == h2) {
        (true, true) if width == height => quarter(block, width / 2, height / 2),
        (true, true) if height > width => rows(block, height / 2),
        (true, true) => columns(block, width / 2),
        (false, true) => columns(block, w2),
        (true, false) => rows(block, h2),
        (false, false) => quarter(block, w2, h2),
    }
}

fn columns(block: Rect, left: u32) -> Vec<Rect> {
    let Rect { x, y, width, height } = block;
    vec![Rect { x, y, width: left, height }, Rect { x: x + left, y, width: width - left, height }]
}

fn rows(block: Rect, upper: u32) -> Vec<Rect> {
    let Rect { x, y, width, height } = block;
    vec![Rect { x, y, width, height: upper }, Rect { x, y: y + upper, width, height: height - upper }]
}

fn quarter(block: Rect, left: u32, upper: u32) -> Vec<Rect> {
    let [top, bottom] = rows(block, upper).try_into().expect("two rows");
    let (mut parts, below) = (columns(top, left), columns(bottom, left));
    parts.extend(below.into_iter().rev());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(width: u32, height: u32) -> Vec<(u32, u32, u32, u32)> {
        let block = Rect { x: 10, y: 20, width, height };
        buddies(block).iter().map(|r| (r.x, r.y, r.width, r.height)).collect()
    }

    #[test]
    fn each_of_the_six_cases_breaks_as_the_paper_says() {
        assert_eq!(parts(4, 4), [(10, 20, 2, 2), (12, 20, 2, 2), (12, 22, 2, 2), (10, 22, 2, 2)]);
        assert_eq!(parts(4, 8), [(10, 20, 4, 4), (10, 24, 4, 4)]);
        assert_eq!(parts(8, 4), [(10, 20, 4, 4), (14, 20, 4, 4)]);
        assert_eq!(parts(7, 4), [(10, 20, 4, 4), (14, 20, 3, 4)]);
        assert_eq!(parts(4, 7), [(10, 20, 4, 4), (10, 24, 4, 3)]);
        assert_eq!(parts(7, 6), [(10, 20, 4, 4), (14, 20, 3, 4), (14, 24, 3, 2), (10, 24, 4, 2)]);
        assert_eq!(parts(3, 3), [(10, 20, 2, 2), (12, 20, 1, 2), (12, 22, 1, 1), (10, 22, 2, 1)]);
    }

    #[test]
    fn buddies_cover_their_block_and_do_not_overlap() {
        for (width, height) in (1..20).flat_map(|w| (1..20).map(move |h| (w, h))).skip(1) {
            let block = Rect { x: 3, y: 5, width, height };
            let parts = buddies(block);
            assert_eq!(parts.iter().map(Rect::area).sum::<u32>(), block.area(), "{width} x {height}");
            for (index, part) in parts.iter().enumerate() {
                assert!(block.contains(part) && part.area() > 0);
                assert!(parts[..index].iter().all(|other| !other.overlaps(part)));
            }
        }
    }
}
