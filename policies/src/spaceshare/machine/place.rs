//! Placement of a job on the node sets of its group, in two passes (paper 002 §2.2). The result is a set of
//! node sets: bit `i` for set `i`.

use super::{NodeSet, SetId};
use crate::{JobId, spaceshare::allocate::Request};

pub(super) fn place_among(sets: &mut [NodeSet], of: &[SetId], job: JobId, request: Request) -> Option<u64> {
    place_whole(sets, of, job, request).or_else(|| place_divided(sets, of, job, request))
}

/// First pass: the set with the fewest free units that grants all of it.
fn place_whole(sets: &mut [NodeSet], of: &[SetId], job: JobId, request: Request) -> Option<u64> {
    let index = |set: &SetId| usize::from(set.0);
    if let [only] = of {
        return sets[index(only)].allocator.allocate(job, request).map(|_| 1 << only.0);
    }
    let mut order: Vec<&SetId> =
        of.iter().filter(|set| sets[index(set)].allocator.free() >= request.units()).collect();
    order.sort_by_key(|set| sets[index(set)].allocator.free());
    order.into_iter().find_map(|set| sets[index(set)].allocator.allocate(job, request).map(|_| 1 << set.0))
}

/// Second pass: a part in each set, in the order of the group. Requests for several CPUs a node are not
/// divided.
fn place_divided(sets: &mut [NodeSet], of: &[SetId], job: JobId, request: Request) -> Option<u64> {
    if of.len() < 2 || request.cpus != 1 {
        return None;
    }
    let (mut home, mut left) = (0, request.nodes);
    for set in of {
        let allocator = &mut sets[usize::from(set.0)].allocator;
        let part = allocator.largest_request().min(left);
        if part > 0 && allocator.allocate(job, Request::nodes(part)).is_some() {
            home |= 1 << set.0;
            left -= part;
        }
        if left == 0 {
            return Some(home);
        }
    }
    release_all(sets, home, job);
    None
}

/// Releases the nodes of `job` in each set of `home`.
pub(super) fn release_all(sets: &mut [NodeSet], home: u64, job: JobId) {
    for (bit, set) in sets.iter_mut().enumerate() {
        if home >> bit & 1 == 1 {
            set.allocator.release(job).expect("a job holds nodes in the sets it was placed in");
        }
    }
}
