//! Cases of `scheduler.slice` and `scheduler.local` with the parameters of its techniques, and that all of
//! them can be given.

use super::{Case, Scene, VALID, stderr};

#[rustfmt::skip]
pub(super) const CASES: &[Case] = cases![
    "slices where a node never has two jobs": "policy: hybrid" => "policy: gang\n  slice: 20ms",
        line 7, "scheduler.slice", ["under `gang` no two jobs are on a node", "write `policy: hybrid`"];
    "a slice that is shorter than its switch": "quantum: 10s" => "slice: 100us",
        line 7, "scheduler.slice", ["a slice has 300µs to 10s", "for example `20ms`"];
    "a slice that is a turn": "quantum: 10s" => "slice: 1min",
        line 7, "scheduler.slice", ["a slice has 300µs to 10s"];
    "slices beside a node scheduler": "quantum: 10s" => "slice: 20ms\n  local: dcs",
        line 7, "scheduler.slice", ["leave one of the two out"];
    "slots shorter than a slice may be": "quantum: 10s" => "slice: 100us\n  local: fcs",
        line 7, "scheduler.slice", ["a slice has 300µs to 10s"];
    "exchanges that are too short": "quantum: 10s" => "local: {bcs: {exchanges: 7}}",
        line 7, "scheduler.local.bcs.exchanges",
        ["7 exchanges in a slot of 2ms would have less than 300µs each", "write 6 or fewer"];
    "exchanges of a slot that is given": "quantum: 10s" => "slice: 1ms\n  local: {bcs: {exchanges: 4}}",
        line 8, "scheduler.local.bcs.exchanges", ["in a slot of 1ms", "write 3 or fewer"];
    "a word for the dedicated mode": "quantum: 10s" => "local: {bcs: {dedicated: sometimes}}",
        line 7, "scheduler.local.bcs.dedicated", ["`sometimes`"];
    "a misspelt round robin": "quantum: 10s" => "local: round_robin",
        line 7, "scheduler.local", ["did you mean `round-robin`?"];
    "a round robin without a slice": "quantum: 10s" => "local: {round-robin: {slice: 20s}}",
        line 7, "scheduler.local.round-robin.slice", ["`20s` is not from 100µs to 10s"];
    "a round robin that prefers": "quantum: 10s" => "local: {round-robin: {share: 1ms}}",
        line 7, "scheduler.local.round-robin.share", ["known here are slice"];
    "an unknown node scheduler": "quantum: 10s" => "local: fcz",
        line 7, "scheduler.local", ["did you mean `fcs`?", "dts-stop"];
    "a list of node schedulers": "quantum: 10s" => "local: [dcs, ics]",
        line 7, "scheduler.local", ["a list stands where a single value belongs"];
    "no technique": "quantum: 10s" => "local: {}",
        line 7, "scheduler.local", ["0 techniques stand where one belongs", "`dcs: {share: 200us}`"];
    "two techniques": "quantum: 10s" => "local: {dcs: {}, ics: {}}",
        line 7, "scheduler.local", ["2 techniques stand where one belongs"];
    "an unknown technique with parameters": "quantum: 10s" => "local:\n    fcz: {slice: 10ms}",
        line 8, "scheduler.local.fcz", ["there is no field `fcz`", "did you mean `fcs`?"];
    "a value for parameters": "quantum: 10s" => "local: {dcs: 10ms}",
        line 7, "scheduler.local.dcs", ["a single value stands where a mapping"];
    "an unknown parameter": "quantum: 10s" => "local:\n    dcs:\n      slise: 10ms",
        line 9, "scheduler.local.dcs.slise", ["did you mean `slice`?", "credit_max, share, slice"];
    "a parameter of another technique": "quantum: 10s" => "local: {hpdt: {share: 1ms}}",
        line 7, "scheduler.local.hpdt.share", ["known here are slice"];
    "no slice": "quantum: 10s" => "local: {dcs: {slice: 0s}}", line 7, "scheduler.local.dcs.slice",
        ["`0s` is not from 100µs to 10s", "leave `slice` out"];
    "a slice without unit": "quantum: 10s" => "local: {bcs: {slice: 10}}",
        line 7, "scheduler.local.bcs.slice", ["has no unit"];
    "no bound of fairness": "quantum: 10s" => "local: {dcs: {credit_max: 0s}}",
        line 7, "scheduler.local.dcs.credit_max", ["`0s` is not from 1ms to 3600s"];
    "two limits of spinning": "quantum: 10s" => "local: {ics: {spin: 50us, switches: 5}}",
        line 7, "scheduler.local.ics.spin", ["`switches` says as well", "leave one of the two out"];
    "a rank that spins for ever": "quantum: 10s" => "local: {ics: {spin: 1h}}",
        line 7, "scheduler.local.ics.spin", ["`1h` is not from 0ns to 1s"];
    "neither true nor false": "quantum: 10s" => "local: {ics: {woken_first: often}}",
        line 7, "scheduler.local.ics.woken_first", ["`often` is not `true` or `false`"];
    "a weight above all": "quantum: 10s" => "local: {predictive: {past_weight: 1.5}}",
        line 7, "scheduler.local.predictive.past_weight", ["`1.5` is not from 0.0 to 1.0"];
    "a weight below nothing": "quantum: 10s" => "local: {dynamic: {past_weight: -0.1}}",
        line 7, "scheduler.local.dynamic.past_weight", ["`-0.1` is not from 0.0 to 1.0"];
    "a weight that is none": "quantum: 10s" => "local: {dynamic: {past_weight: much}}",
        line 7, "scheduler.local.dynamic.past_weight", ["`much` is not a number"];
    "a weight that is not finite": "quantum: 10s" => "local: {dynamic: {past_weight: .nan}}",
        line 7, "scheduler.local.dynamic.past_weight", ["is not a number"];
    "no overtaking": "quantum: 10s" => "local: {predictive: {overtakes_max: 0}}",
        line 7, "scheduler.local.predictive.overtakes_max", ["`0` is not from 1 to 1000"];
    "an unknown mode": "quantum: 10s" => "local: {dts: {mode: ballanced}}",
        line 7, "scheduler.local.dts.mode", ["did you mean `balanced`?"];
    "an unknown filling": "quantum: 10s" => "local: {dts: {filling: none}}",
        line 7, "scheduler.local.dts.filling", ["known are both, stop"];
    "fixed slices in another mode": "quantum: 10s" => "local: {dts: {parallel: 20ms}}",
        line 7, "scheduler.local.dts.parallel",
        ["the mode `distributed` has no `parallel`", "`mode: static`"];
    "a period of fixed slices": "quantum: 10s" => "local: {dts: {mode: static, period: 1s}}",
        line 7, "scheduler.local.dts.period",
        ["the mode `static` has no `period`", "`mode: balanced` or `mode: distributed`"];
    "a report to nowhere": "quantum: 10s" => "local: {dts: {threshold: 2}}",
        line 7, "scheduler.local.dts.threshold", ["the mode `distributed` has no `threshold`"];
    "a period too short to be divided": "quantum: 10s" => "local: {dts: {mode: balanced, period: 1ms}}",
        line 7, "scheduler.local.dts.period", ["`1ms` is not from 10ms to 10s"];
    "a slice of no time for ranks": "quantum: 10s" => "local: {dts: {mode: static, parallel: 0ms}}",
        line 7, "scheduler.local.dts.parallel", ["`0ms` is not from 1ms to 10s"];
    "no power at all": "nodes: 2" => "nodes: [alpha, {host: beta, power: 0}]",
        line 2, "cluster.nodes[1].power", ["`0` is not a speed by that of the fastest host", "write `1`"];
    "more power than the fastest": "nodes: 2" => "nodes: [{host: alpha, power: 1.5}]",
        line 2, "cluster.nodes[0].power", ["above 0 and not above 1", "takes twice as long"];
    "a power that is no number": "nodes: 2" => "nodes: [{host: alpha, power: half}]",
        line 2, "cluster.nodes[0].power", ["`half` is not a speed"];
    "a power that is not finite": "nodes: 2" => "nodes: [{host: alpha, power: .nan}]",
        line 2, "cluster.nodes[0].power", ["is not a speed"];
    "a ratio below one": "quantum: 10s" => "local: {fcs: {high_ratio: 0.5}}",
        line 7, "scheduler.local.fcs.high_ratio", ["`0.5` is not from 1.0 to 1000.0"];
    "no trial": "quantum: 10s" => "local: {fcs: {trial_slots: 0}}",
        line 7, "scheduler.local.fcs.trial_slots", ["`0` is not from 1 to 1000"];
    "parameters beside slices": "quantum: 10s" => "slice: 20ms\n  local: {ics: {switches: 5}}",
        line 7, "scheduler.slice", ["leave one of the two out"];
];

#[test]
fn the_power_of_some_hosts_can_be_given() {
    let nodes = "nodes: [alpha, {host: beta, power: 0.5}, {host: gamma, power: 1}]";
    let text = VALID.replace("nodes: 2", nodes).replace("  network: {rate: 100Mbit}\n", "");
    let output = Scene::with(&text).run(&["check"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn every_parameter_of_each_technique_can_be_given() {
    for local in [
        "none",
        "dts-balanced",
        "{dcs: {}}",
        "{dcs: {slice: 5ms, share: 100us, credit_max: 1h}}",
        "{ics: {slice: 5ms, spin: 0us, woken_first: false}}",
        "{ics: {switches: 5, woken_first: true}}",
        "{predictive: {slice: 5ms, overtakes_max: 3, past_weight: 0.5}}",
        "{dynamic: {slice: 5ms, overtakes_max: 3, past_weight: 1}}",
        "{hpdt: {slice: 100us}}",
        "{dts: {slice: 5ms, mode: static, parallel: 20ms, local: 10ms, filling: stop}}",
        "{dts: {mode: balanced, period: 50ms, samples: 2, past_weight: 0, threshold: 0.5}}",
        "{dts: {mode: distributed, sample_every: 100ms, samples: 3, filling: both}}",
        "{fcs: {slice: 5ms, trial_slots: 3, forget_after: 4, rare: 5, long_wait: 1ms, high_ratio: 1}}",
        "{bcs: {slice: 5ms, exchanges: 6, dedicated: true}}",
        "round-robin",
        "{round-robin: {slice: 5ms}}",
    ] {
        let text = VALID.replace("  quantum: 10s", &format!("  local: {local}"));
        let output = Scene::with(&text).run(&["check"]);
        assert_eq!(output.status.code(), Some(0), "{local}: {}", stderr(&output));
    }
}
