//! Properties of every allocator on random machines under random sequences of requests and releases.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_policies::{
    JobId,
    spaceshare::allocate::{
        Allocator, BoxPacker, Buddy, Buddy2d, Contiguous, FirstFit, M2db, Mesh, Rect, Request,
    },
};
use proptest::prelude::*;

/// An allocator and its machine.
struct Kind {
    name: &'static str,
    extent: Mesh,
    new: Box<dyn Fn() -> Box<dyn Allocator>>,
}

fn kinds(width: u32, height: u32) -> Vec<Kind> {
    let mesh = Mesh { width, height };
    let line = Mesh::line(width * height);
    let kind = |name, extent, new: Box<dyn Fn() -> Box<dyn Allocator>>| Kind { name, extent, new };
    vec![
        kind("first fit", line, Box::new(move || Box::new(FirstFit::new(line.width)))),
        kind("contiguous", line, Box::new(move || Box::new(Contiguous::new(line.width)))),
        kind("buddy", line, Box::new(move || Box::new(Buddy::new(line.width)))),
        kind("2-D buddy", mesh, Box::new(move || Box::new(Buddy2d::new(mesh)))),
        kind("M2DB", mesh, Box::new(move || Box::new(M2db::new(mesh)))),
        kind("boxes", mesh, Box::new(move || Box::new(BoxPacker::new(width, height)))),
    ]
}

/// A job requests nodes, or the job at this place among the holders releases its nodes.
#[derive(Clone, Debug)]
enum Act {
    Come(Request),
    /// A job claims every third unit of so many from this one on.
    Claim(u32, u32),
    Go(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let request = (1u32..40, prop_oneof![4 => Just(1u32), 1 => 2u32..5]);
    let come = request.prop_map(|(nodes, cpus)| Act::Come(Request { nodes, cpus }));
    let claim = (0u32..100, 1u32..6).prop_map(|(first, count)| Act::Claim(first, count));
    prop::collection::vec(prop_oneof![6 => come, 1 => claim, 4 => (0usize..100).prop_map(Act::Go)], 0..80)
}

/// The allocations, kept beside the allocator.
struct Model<'a> {
    kind: &'a Kind,
    allocator: Box<dyn Allocator>,
    held: BTreeMap<JobId, Vec<Rect>>,
    next: u32,
}

impl Model<'_> {
    fn new(kind: &Kind) -> Model<'_> {
        Model { kind, allocator: (kind.new)(), held: BTreeMap::new(), next: 0 }
    }

    fn act(&mut self, act: &Act) -> Result<(), TestCaseError> {
        match act {
            Act::Come(request) => self.come(*request)?,
            Act::Claim(first, count) => self.claim(*first, *count)?,
            Act::Go(place) if !self.held.is_empty() => {
                let job = *self.held.keys().nth(place % self.held.len()).unwrap();
                let gone = self.allocator.release(job).map(|allocation| allocation.blocks);
                prop_assert_eq!(gone, self.held.remove(&job), "{} gives back what it took", self.kind.name);
            }
            Act::Go(_) => {}
        }
        self.check()
    }

    fn come(&mut self, request: Request) -> Result<(), TestCaseError> {
        let job = JobId(self.next);
        self.next += 1;
        let (free, largest) = (self.allocator.free(), self.allocator.largest_request());
        let most = self.allocator.largest_units();
        let name = self.kind.name;
        match self.allocator.allocate(job, request).cloned() {
            Some(got) => {
                prop_assert!(got.units() >= request.units(), "{name} gives at least what was asked");
                prop_assert_eq!(self.allocator.free(), free - got.units());
                prop_assert!(request.cpus > 1 || request.nodes <= largest);
                prop_assert!(request.units() <= most, "{name} gives more than it says it could");
                self.held.insert(job, got.blocks);
            }
            None => {
                prop_assert!(
                    request.cpus > 1 || request.nodes > largest,
                    "{name} refuses what it could grant"
                );
                prop_assert_eq!(self.allocator.free(), free, "{} refuses without a trace", name);
                prop_assert_eq!(self.allocator.allocation(job), None);
            }
        }
        Ok(())
    }

    fn claim(&mut self, first: u32, count: u32) -> Result<(), TestCaseError> {
        let job = JobId(self.next);
        self.next += 1;
        let (free, name) = (self.allocator.free(), self.kind.name);
        let units: Vec<u32> = (0..count).map(|nth| first + 3 * nth).collect();
        let held: BTreeSet<u32> =
            self.held.values().flatten().flat_map(|block| self.kind.extent.numbers(*block)).collect();
        let are_free = units.iter().all(|unit| *unit < self.kind.extent.units() && !held.contains(unit));
        prop_assert_eq!(self.allocator.claim(job, &units), are_free, "{} knows which units are free", name);
        if are_free {
            let got = self.allocator.allocation(job).unwrap().blocks.clone();
            let numbers = got.iter().flat_map(|block| self.kind.extent.numbers(*block));
            prop_assert_eq!(numbers.collect::<Vec<_>>(), units, "{} gives what was claimed", name);
            self.held.insert(job, got);
        } else {
            prop_assert_eq!(self.allocator.free(), free, "{} refuses without a trace", name);
        }
        Ok(())
    }

    /// No unit is held twice, lost, or outside of the machine.
    fn check(&self) -> Result<(), TestCaseError> {
        let mut seen = BTreeSet::new();
        for block in self.held.values().flatten() {
            prop_assert!(self.kind.extent.whole().contains(block), "{} stays inside", self.kind.name);
            for unit in self.kind.extent.numbers(*block) {
                prop_assert!(seen.insert(unit), "{} gives unit {unit} twice", self.kind.name);
            }
        }
        let held = u32::try_from(seen.len()).unwrap();
        prop_assert_eq!(
            self.allocator.free() + held,
            self.allocator.total(),
            "{} loses none",
            self.kind.name
        );
        let cut = self.allocator.fragmentation();
        prop_assert_eq!((cut.free, cut.total), (self.allocator.free(), self.allocator.total()));
        prop_assert!(cut.largest_block <= cut.free && cut.largest_request <= cut.free);
        prop_assert!(self.allocator.largest_request() <= cut.largest_request);
        prop_assert!(
            (0.0..=1.0).contains(&cut.external_share()) && (0.0..=1.0).contains(&cut.scatter_share())
        );
        Ok(())
    }

    fn release_all(&mut self) {
        for job in std::mem::take(&mut self.held).into_keys() {
            self.allocator.release(job).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_unit_is_given_twice_and_none_is_lost(width in 1u32..24, height in 1u32..9, acts in acts()) {
        for kind in kinds(width, height) {
            let mut model = Model::new(&kind);
            acts.iter().try_for_each(|act| model.act(act))?;
        }
    }

    #[test]
    fn when_all_jobs_have_left_the_blocks_have_joined_again(
        width in 1u32..24, height in 1u32..9, before in acts(), after in acts(),
    ) {
        for kind in kinds(width, height) {
            let (mut used, mut fresh) = (Model::new(&kind), Model::new(&kind));
            before.iter().try_for_each(|act| used.act(act))?;
            used.release_all();
            prop_assert_eq!(used.allocator.fragmentation(), fresh.allocator.fragmentation());
            // It also decides like an unused machine.
            fresh.next = used.next;
            for act in &after {
                used.act(act)?;
                fresh.act(act)?;
                prop_assert_eq!(&used.held, &fresh.held, "{}", kind.name);
            }
        }
    }

    #[test]
    fn the_initial_block_of_m2db_is_restored(width in 1u32..40, height in 1u32..40, acts in acts()) {
        let mesh = Mesh { width, height };
        let mut m2db = M2db::new(mesh);
        let mut held = Vec::new();
        for (job, act) in (0..).map(JobId).zip(&acts) {
            match act {
                Act::Come(request) if m2db.allocate(job, *request).is_some() => held.push(job),
                Act::Go(place) if !held.is_empty() => {
                    let job = held.swap_remove(place % held.len());
                    m2db.release(job).unwrap();
                }
                _ => {}
            }
            let free: u32 = m2db.free_blocks().map(|block| block.area()).sum();
            prop_assert_eq!(free, m2db.free());
        }
        for job in held {
            m2db.release(job).unwrap();
        }
        prop_assert_eq!(m2db.free_blocks().collect::<Vec<_>>(), vec![mesh.whole()]);
    }

    #[test]
    fn buddy_allocations_are_one_block_of_an_aligned_size(
        width in 1u32..200,
        requests in prop::collection::vec(1u32..64, 1..40),
    ) {
        let (mut contiguous, mut buddy) = (Contiguous::new(width), Buddy::new(width));
        for (job, nodes) in (0..).map(JobId).zip(requests) {
            if let Some(got) = contiguous.allocate(job, Request::nodes(nodes)) {
                prop_assert_eq!(&got.blocks, &vec![Rect::run(got.blocks[0].x, nodes)]);
            }
            if let Some(got) = buddy.allocate(job, Request::nodes(nodes)) {
                let [block] = got.blocks[..] else { panic!("a buddy is one block") };
                prop_assert_eq!(block.width, nodes.next_power_of_two());
                prop_assert_eq!(block.x % block.width, 0);
            }
        }
    }
}
