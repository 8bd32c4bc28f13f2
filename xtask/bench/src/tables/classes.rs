//! The classes that FCS finds for programs, two at a time in slots (paper 000, §2.4.2-2.4.4, Table 2.1).

use std::time::Duration;

use anyhow::{Context, Result};
use coswitch_policies::local::{ClassSlots, ProcessClass, Technique, Used};
use coswitch_sim::local::mix::MixJob;

use super::Load;
use crate::{
    figure::Figure,
    grain_jobs::{COMPUTE, FINE, IMBALANCED},
    stage::apart,
};

const SPAN: Duration = Duration::from_secs(4);
/// A message in eight slots: fewer than the `rare` of the technique before its counts are halved.
const COARSE: MixJob = MixJob { grain: Duration::from_millis(400), ..FINE };
/// Name and job of each program, and the class in which Table 2.1 of the paper puts it.
const SORTS: [(&str, MixJob, ProcessClass); 4] = [
    ("fine-grained, balanced", endless(FINE), ProcessClass::Coscheduled),
    ("imbalanced, all to all", endless(IMBALANCED), ProcessClass::Frustrated),
    ("no communication", endless(COMPUTE), ProcessClass::DontCare),
    ("coarse, rare messages", endless(COARSE), ProcessClass::DontCare),
];

const fn endless(job: MixJob) -> MixJob {
    MixJob { steps: MixJob::ENDLESS, ..job }
}

/// The slots of a program beside another, live and simulated.
#[derive(Clone, Copy, Debug, Default)]
struct Beside {
    live: ClassSlots,
    simulated: ClassSlots,
}

pub(super) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let mut all = [[Beside::default(); SORTS.len()]; SORTS.len()];
    for round in 0..u64::from(rounds) {
        for one in 0..SORTS.len() {
            for other in one..SORTS.len() {
                let load = Load { nodes: 2, jobs: [one, other].map(|at| SORTS[at].1).to_vec(), hogs: 0 };
                let live = apart(|| load.live(Technique::FCS, SPAN));
                let live = live.with_context(|| format!("failed to run {} beside another", SORTS[one].0))?;
                let simulated = load.simulated(Technique::FCS, SPAN, round + 1);
                for (at, (mine, its)) in [(one, other), (other, one)].into_iter().enumerate() {
                    add(&mut all[mine][its], &live[at], &simulated[at]);
                }
                let slots = [one, other].map(|mine| words(&all[mine][one + other - mine].live));
                eprintln!("  {} beside {}: {}; {}", SORTS[one].0, SORTS[other].0, slots[0], slots[1]);
            }
        }
    }
    Ok(figures(&all))
}

fn add(to: &mut Beside, live: &Used, simulated: &Used) {
    to.live += live.slots;
    to.simulated += simulated.slots;
}

fn figures(all: &[[Beside; SORTS.len()]; SORTS.len()]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut as_predicted = [0, 0];
    for ((name, _, predicted), row) in SORTS.iter().zip(all) {
        for ((other, ..), beside) in SORTS.iter().zip(row) {
            let found = [&beside.live, &beside.simulated];
            for (count, slots) in as_predicted.iter_mut().zip(found) {
                *count += u32::from(most(slots) == Some(*predicted));
            }
            let [live, simulated] = found.map(words);
            let share = 100.0 * beside.live.share(*predicted).unwrap_or_default();
            let name = format!("{name} | {other}: slots as {}", predicted.word());
            let detail = format!("{live}; simulated {simulated}");
            figures.push(Figure::plain(name, share, "%").of(detail));
        }
    }
    let count = SORTS.len() * SORTS.len();
    for (where_, found) in ["live", "simulated"].into_iter().zip(as_predicted) {
        let name = format!("Table 2.1, {where_}: most slots in the class of the paper, of {count}");
        figures.push(Figure::plain(name, f64::from(found), ""));
    }
    figures
}

/// The class of most slots.
fn most(slots: &ClassSlots) -> Option<ProcessClass> {
    let most = ProcessClass::ALL.into_iter().max_by_key(|class| slots.of(*class))?;
    (slots.of(most) > 0).then_some(most)
}

fn words(slots: &ClassSlots) -> String {
    let share = |class: ProcessClass| {
        let share = 100.0 * slots.share(class).unwrap_or_default();
        format!("{} {share:.0} %", class.word())
    };
    let most = most(slots).map_or("none", ProcessClass::word);
    format!("{most} ({} of {} slots)", ProcessClass::ALL.map(share).join(", "), slots.all())
}
