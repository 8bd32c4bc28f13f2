//! Judges a given quantum by what switches cost: finds one that is too short, and says what `quantum: auto`
//! would take.
//!
//! The live master feeds it the events and decisions of a run, `explain` and `simulate` those of a
//! simulation. The cost of a switch is the time in which no job runs because of it; launches count as none.

use std::{fmt, time::Duration};

use serde::Serialize;

use super::scheduler::AutoQuantum;
use crate::{Decision, Purpose, Residence, SchedulerEvent, Start, SwitchId, SwitchPlan};

/// A switch that costs more than one part in so many of the quantum is reported: a tenth.
pub const SHARE_MAX: u32 = 10;
/// A run is judged from this many switches on. The longest of them is left out: the first dump into memory
/// that the host has not backed yet takes up to ten times as long as the others.
const SWITCHES_MIN: u32 = 3;

/// Times in which no job ran because of a switch.
#[derive(Clone, Copy, Debug, Default)]
struct Exposed {
    switches: u32,
    sum: Duration,
    longest: Duration,
}

impl Exposed {
    fn add(&mut self, time: Duration) {
        self.switches += 1;
        self.sum += time;
        self.longest = self.longest.max(time);
    }

    fn mean(self) -> Option<Duration> {
        self.sum.checked_div(self.switches)
    }

    fn mean_without_longest(self) -> Option<Duration> {
        Self { switches: self.switches.checked_sub(1)?, sum: self.sum - self.longest, ..self }.mean()
    }
}

/// Compares a given quantum to the cost of the switches so far.
#[derive(Clone, Debug)]
pub struct QuantumWatch {
    quantum: Duration,
    /// What `quantum: auto` would keep to, and the shortest that it would take.
    auto: AutoQuantum,
    shortest: Duration,
    /// The switch under way, if it counts, and whether it moves jobs.
    under_way: Option<(SwitchId, bool)>,
    all: Exposed,
    /// The switches in which jobs left memory or came back to it.
    moving: Exposed,
}

impl QuantumWatch {
    #[must_use]
    pub fn new(quantum: Duration, auto: AutoQuantum, shortest: Duration) -> Self {
        let (all, moving) = (Exposed::default(), Exposed::default());
        Self { quantum, auto, shortest, under_way: None, all, moving }
    }

    pub fn on_decision(&mut self, decision: &Decision) {
        if let Decision::Switch(plan) = decision {
            self.under_way = counts(plan).then(|| (plan.switch, moves(plan)));
        }
    }

    pub fn on_event(&mut self, event: &SchedulerEvent) {
        let SchedulerEvent::SwitchTimed { switch, exposed, .. } = event else { return };
        if let Some((_, moves)) = self.under_way.take_if(|(under_way, _)| under_way == switch) {
            self.all.add(*exposed);
            if moves {
                self.moving.add(*exposed);
            }
        }
    }

    /// Whether the quantum is too short by the first switches of a run.
    #[must_use]
    pub fn judge_early(&self) -> Option<ShortQuantum> {
        let enough = self.all.switches >= SWITCHES_MIN;
        let moving = self.moving.mean_without_longest().filter(|_| self.moving.switches >= SWITCHES_MIN);
        self.compare(self.all.mean_without_longest().filter(|_| enough)?, moving)
    }

    /// Whether the quantum is too short by all switches.
    #[must_use]
    pub fn judge(&self) -> Option<ShortQuantum> {
        self.compare(self.all.mean()?, self.moving.mean())
    }

    /// Where some switches move jobs, `auto` goes by those.
    fn compare(&self, cost: Duration, moving: Option<Duration>) -> Option<ShortQuantum> {
        let needed = self.auto.slice(moving.unwrap_or(cost));
        let auto = needed.clamp(self.shortest, self.auto.longest.max(self.shortest));
        let short = ShortQuantum {
            quantum: self.quantum,
            switches: self.all.switches,
            cost,
            auto,
            overhead: self.auto.overhead,
            narrows: needed > auto,
        };
        let auto_differs = short.narrows || auto > self.quantum;
        (cost * SHARE_MAX > self.quantum && auto_differs).then_some(short)
    }
}

/// Whether the switch takes the turn from one row and gives it to another, and launches none.
fn counts(plan: &SwitchPlan) -> bool {
    let launches = plan.incoming.iter().any(|incoming| incoming.start == Start::Launch);
    plan.purpose == Purpose::Turn && !plan.is_activation() && !launches
}

fn moves(plan: &SwitchPlan) -> bool {
    plan.outgoing.iter().any(|outgoing| outgoing.to == Residence::Parked)
        || plan.incoming.iter().any(|incoming| incoming.start == Start::Restore)
}

/// A quantum that is short for what a switch costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ShortQuantum {
    pub quantum: Duration,
    /// How many switches were measured or simulated.
    pub switches: u32,
    /// What one of them cost.
    pub cost: Duration,
    /// What `quantum: auto` would take.
    pub auto: Duration,
    /// The share that `auto` keeps to, in millionths.
    pub overhead: u32,
    /// That slice is the longest allowed and still too short, so that fewer rows would take turns.
    pub narrows: bool,
}

impl fmt::Display for ShortQuantum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quantum, switches, cost, auto, overhead, narrows } = self;
        let (quantum_s, cost_s) = (seconds(*quantum), seconds(*cost));
        if cost > quantum {
            write!(f, "the quantum of {quantum_s} is shorter than a switch, in which no job runs: {cost_s}")?;
        } else {
            let percent = 100.0 * cost.as_secs_f64() / quantum.as_secs_f64();
            write!(
                f,
                "a switch, in which no job runs, takes {cost_s}, {percent:.0} % of the quantum of {quantum_s}"
            )?;
        }
        let share = f64::from(*overhead) / 1e4;
        write!(f, " (mean of {switches}); `quantum: auto` would take about {}", seconds(*auto))?;
        match narrows {
            false => write!(f, ", so that switching costs {share} %"),
            true => {
                write!(f, ", its longest, and let fewer slots take turns, so that switching costs {share} %")
            }
        }
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        short if short < 1.0 => format!("{:.0} ms", short * 1e3),
        some if some < 10.0 => format!("{some:.1} s"),
        many => format!("{many:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Incoming, JobId, Outgoing, Placement, SlotId, SwitchOrder};

    const AUTO: AutoQuantum = AutoQuantum { overhead: 20_000, longest: Duration::from_secs(100) };

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A watch over switches from job 0 to job 1 that cost so many milliseconds.
    fn watch(quantum: u64, start: Start, costs: &[u64]) -> QuantumWatch {
        let mut watch = QuantumWatch::new(ms(quantum), AUTO, ms(1000));
        for (number, cost) in (0..).zip(costs) {
            let switch = SwitchId(number);
            let to = if start == Start::Resume { Residence::Suspended } else { Residence::Parked };
            watch.on_decision(&Decision::Switch(SwitchPlan {
                switch,
                slot: SlotId(0),
                purpose: Purpose::Turn,
                outgoing: vec![Outgoing { job: JobId(0), running: true, to }],
                incoming: vec![Incoming { job: JobId(1), start, placement: Placement::from_shares(&[1]) }],
                order: SwitchOrder::Sequential,
            }));
            watch.on_event(&SchedulerEvent::SwitchTimed { switch, restore: None, exposed: ms(*cost) });
        }
        watch
    }

    #[test]
    fn quantum_below_the_cost_of_a_switch_is_reported_with_what_auto_would_take() {
        let said = watch(400, Start::Restore, &[900, 1100]).judge().unwrap().to_string();
        assert_eq!(
            said,
            "the quantum of 400 ms is shorter than a switch, in which no job runs: 1.0 s (mean of 2); \
             `quantum: auto` would take about 50 s, so that switching costs 2 %"
        );
    }

    #[test]
    fn switch_that_takes_more_than_a_tenth_of_the_quantum_is_reported() {
        assert_eq!(watch(10_000, Start::Restore, &[1000]).judge(), None, "a tenth");
        let said = watch(10_000, Start::Restore, &[2500]).judge().unwrap().to_string();
        assert!(said.starts_with("a switch, in which no job runs, takes 2.5 s, 25 % of the quantum of 10 s"));
        assert!(said.contains("about 100 s, its longest, and let fewer slots"), "{said}");
    }

    #[test]
    fn run_is_judged_from_the_third_switch_on_and_one_slow_switch_counts_as_none() {
        assert_eq!(watch(1000, Start::Restore, &[500, 500]).judge_early(), None, "too few");
        assert_eq!(watch(1000, Start::Restore, &[2700, 30, 30]).judge_early(), None, "the first was slow");
        let short = watch(1000, Start::Restore, &[2700, 300, 500]).judge_early().unwrap();
        assert_eq!((short.cost, short.auto, short.switches), (ms(400), ms(20_000), 3));
    }

    #[test]
    fn launches_and_costs_that_auto_would_accept_are_not_reported() {
        assert_eq!(watch(1000, Start::Launch, &[900; 5]).judge(), None);
        assert_eq!(watch(100, Start::Resume, &[9; 5]).judge(), None, "9 %");
        let short = watch(100, Start::Resume, &[12; 5]).judge().unwrap();
        assert_eq!(short.auto, ms(1000), "the shortest that auto takes");
    }
}
