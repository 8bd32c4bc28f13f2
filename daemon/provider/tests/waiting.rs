//! Tests of waiting ranks: the processor time that they take, and their counters.

#[path = "support/programs.rs"]
mod programs;
#[allow(dead_code, reason = "other tests use more of this module")]
mod support;

use coswitch_ring::{SegmentSpec, WaitPolicy};
use support::{Job, Outcome, run};

/// Processor seconds that rank 1 of two took per second of waiting, for each way to wait.
fn cost_of_waiting(nodes: u32, shape: fn(&mut SegmentSpec)) -> (Vec<(String, f64)>, Outcome) {
    let program = programs::compiled("waiting");
    let outcome = run(&Job { shape, ..Job::new(2, nodes, &program, &[]) });
    assert!(outcome.is_success(), "{}", outcome.outputs.join("\n"));
    let costs = outcome.outputs[1].lines().map(|line| {
        let (way, seconds) = line.split_once(' ').expect("two words");
        (way.to_owned(), seconds.parse().expect("a number"))
    });
    (costs.collect(), outcome)
}

#[test]
fn waiting_rank_that_may_sleep_takes_little_processor_time() {
    let shapes: [fn(&mut SegmentSpec); 2] =
        [|spec| spec.wait = WaitPolicy::Block, |spec| spec.wait = WaitPolicy::SpinBlock];
    for nodes in [1, 2] {
        for shape in shapes {
            let (costs, outcome) = cost_of_waiting(nodes, shape);
            assert_eq!(costs.len(), 3);
            for (way, seconds) in costs {
                assert!(seconds < 0.1, "{way} on {nodes} nodes cost {seconds} s of processor time in 1 s");
            }
            let waited = outcome.counters[1].wait_ns as f64 / 1e9;
            assert!((2.5..20.0).contains(&waited), "waited three times a second, counted {waited} s");
        }
    }
}

#[test]
fn spinning_rank_counts_as_waiting() {
    let (_, outcome) = cost_of_waiting(1, |spec| spec.wait = WaitPolicy::Spin);
    let (patient, other) = (outcome.counters[1], outcome.counters[0]);
    assert!(patient.wait_ns > 1_000_000_000, "counted {} ns", patient.wait_ns);
    assert!(other.messages_sent >= 2 && patient.messages_received >= 2);
    assert!(patient.polls > 1000);
}

#[test]
fn programs_succeed_under_every_wait_policy() {
    let shapes: [fn(&mut SegmentSpec); 4] = [
        |spec| spec.wait = WaitPolicy::Spin,
        |spec| spec.wait = WaitPolicy::Yield,
        |spec| spec.wait = WaitPolicy::Block,
        |spec| spec.wait = WaitPolicy::SpinBlock,
    ];
    for shape in shapes {
        for nodes in [1, 2] {
            let program = programs::compiled("hello");
            let outcome = run(&Job { shape, ..Job::new(2, nodes, &program, &[]) });
            assert!(outcome.is_success(), "{}", outcome.outputs.join("\n"));
        }
    }
}

#[test]
fn rank_that_asks_for_messages_between_pieces_of_work_goes_on_working() {
    let program = programs::compiled("polling");
    let shapes: [fn(&mut SegmentSpec); 2] =
        [|spec| spec.wait = WaitPolicy::Block, |spec| spec.wait = WaitPolicy::SpinBlock];
    for shape in shapes {
        let outcome = run(&Job { shape, ..Job::new(2, 1, &program, &[]) });
        assert!(outcome.is_success(), "{}", outcome.outputs.join("\n"));
        let (alone, asking) = outcome.outputs[1].trim().split_once(' ').expect("two numbers");
        let [alone, asking] = [alone, asking].map(|number| number.parse::<f64>().expect("a number"));
        // Asking takes a fraction of a microsecond. A rank that is put to sleep does some hundred pieces.
        assert!(asking > alone / 10.0, "{asking} pieces a second, {alone} without asking");
    }
}
