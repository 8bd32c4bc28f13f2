//! Claims of the demo, judged by the evidence of a run. Pure.

use super::evidence::Evidence;
use std::fmt;

/// Jobs must need this many times the memory of the nodes.
const OVERCOMMIT_MIN: f64 = 2.0;
const SWITCHES_MIN: u64 = 4;

#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) claim: String,
    pub(super) holds: bool,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", if self.holds { "yes" } else { "NO " }, self.claim)
    }
}

pub(super) fn all(evidence: &Evidence) -> Vec<Verdict> {
    vec![verified(evidence), overcommitted(evidence), within_limit(evidence), switched(evidence)]
}

pub(super) fn verified(evidence: &Evidence) -> Verdict {
    let (good, bad): (Vec<_>, Vec<_>) = evidence.jobs.iter().partition(|job| job.exited_well && job.verified);
    let count = evidence.jobs.len();
    let mut claim = format!("{} of {count} jobs ended well and verified their results", good.len());
    if !bad.is_empty() {
        let names: Vec<&str> = bad.iter().map(|job| job.name.as_str()).collect();
        claim += &format!("; failed: {}", names.join(", "));
    }
    Verdict { claim, holds: count > 0 && bad.is_empty() }
}

fn overcommitted(evidence: &Evidence) -> Verdict {
    let Evidence { capacity, nodes, held_by_all, .. } = evidence;
    let declared = evidence.jobs.iter().map(|job| job.declared).sum::<u64>();
    let (asked, held) = (ratio(declared, capacity * nodes), ratio(*held_by_all, *capacity));
    let claim = format!(
        "together the jobs ask for {asked:.2} times the memory of the nodes; \
         their peaks add up to {held:.2} times it ({} on nodes of {})",
        mib(*held_by_all),
        mib(*capacity)
    );
    Verdict { claim, holds: asked >= OVERCOMMIT_MIN && held >= OVERCOMMIT_MIN }
}

fn within_limit(evidence: &Evidence) -> Verdict {
    let Evidence { peak, capacity, samples, .. } = evidence;
    let (peak_mib, limit) = (mib(*peak), mib(*capacity));
    let claim = format!(
        "the jobs on a node held {peak_mib} at most, of {limit} allowed, at each of {samples} samples"
    );
    Verdict { claim, holds: *samples > 0 && peak <= capacity }
}

fn switched(evidence: &Evidence) -> Verdict {
    let claim = format!("{} switches took jobs out of memory and others in", evidence.switches);
    Verdict { claim, holds: evidence.switches >= SWITCHES_MIN }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::super::evidence::Job;
    use super::*;

    fn evidence() -> Evidence {
        let job = |name: &str| Job {
            name: name.into(),
            exited_well: true,
            verified: true,
            peak: 100,
            declared: 250,
        };
        Evidence {
            jobs: vec![job("a"), job("b")],
            nodes: 2,
            capacity: 100,
            switches: 4,
            peak: 100,
            samples: 7,
            held_by_all: 200,
        }
    }

    fn failed(evidence: &Evidence) -> Vec<String> {
        all(evidence).into_iter().filter(|verdict| !verdict.holds).map(|verdict| verdict.claim).collect()
    }

    #[test]
    fn at_its_bounds_every_claim_holds() {
        assert_eq!(failed(&evidence()), [""; 0]);
    }

    #[test]
    fn each_claim_can_fail_by_itself() {
        let spoil: [fn(&mut Evidence); 6] = [
            |e| e.jobs[1].verified = false,
            |e| e.jobs[0].exited_well = false,
            |e| e.held_by_all = 199,
            |e| e.peak = 101,
            |e| e.samples = 0,
            |e| e.switches = 3,
        ];
        for spoil in spoil {
            let mut evidence = evidence();
            spoil(&mut evidence);
            assert_eq!(failed(&evidence).len(), 1, "{evidence:?}");
        }
    }

    #[test]
    fn a_job_that_did_not_verify_is_named() {
        let mut evidence = evidence();
        evidence.jobs[1].verified = false;
        assert!(failed(&evidence)[0].ends_with("failed: b"));
    }
}
