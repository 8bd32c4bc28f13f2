//! DTS in balanced mode: loads of the nodes in, slices for all nodes out.

use coswitch_policies::local::{Technique, explicit::PowerWeight};

use super::*;

fn load(node: u32, index: f64) -> Input {
    Input::Node(NodeEvent::Load { node: NodeId(node), index })
}

fn balanced(local: Technique) -> Run {
    let mut set = job_set(vec![job(0, 40, 0)], SwitchOrder::Sequential, Residency::None);
    set.scheduler.local = Some(local);
    run(set)
}

#[test]
fn the_slices_follow_the_mean_of_the_loads_that_the_nodes_report() {
    let mut run = balanced(Technique::DTS_BALANCED);
    let outputs = story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0; ranks 90ms, local tasks 10ms"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, load(0, 0.9), ""),
            (30, load(1, 1.5), "ranks 70ms, local tasks 30ms"),
            (40, load(0, 1.2), ""),
            (50, load(1, 0.0), "ranks 80ms, local tasks 20ms"),
        ],
    );
    let balanced = |output: &Output| match output {
        Output::Tell(RunEvent { kind: Event::SlicesBalanced { loads, load, .. }, .. }) => {
            Some((loads.iter().map(|(_, load)| *load).collect(), *load))
        }
        _ => None,
    };
    let told: Vec<(Vec<u32>, u32)> = outputs.iter().filter_map(balanced).collect();
    assert_eq!(told, [(vec![0, 0], 0), (vec![900, 1500], 1200), (vec![1200, 0], 600)]);
}

/// Two tasks on the fast node are as much load as one on the node that needs twice the time (thesis §2.1.2).
#[test]
fn the_load_of_a_slower_node_counts_for_more() {
    let mut set = job_set(vec![job(0, 40, 0)], SwitchOrder::Sequential, Residency::None);
    set.scheduler.local = Some(Technique::DTS_BALANCED);
    set.cluster.power = [1.0, 0.5].map(|power| PowerWeight::try_from(power).unwrap()).into();
    let mut run = run(set);
    let outputs = story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0; ranks 90ms, local tasks 10ms"),
            (20, load(0, 2.0), "ranks 80ms, local tasks 20ms"),
            (30, load(1, 1.0), "ranks 60ms, local tasks 40ms"),
        ],
    );
    let last = outputs.iter().rev().find_map(|output| match output {
        Output::Tell(RunEvent { kind: Event::SlicesBalanced { loads, load, .. }, .. }) => {
            Some((loads.clone(), *load))
        }
        _ => None,
    });
    assert_eq!(last, Some((vec![(NodeId(0), 2000), (NodeId(1), 1000)], 2000)), "not the mean of the loads");
}

/// Its daemon knows no slices when it is back, and says its load after a while.
#[test]
fn the_console_goes_on_without_a_lost_node() {
    let mut run = balanced(Technique::DTS_BALANCED);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0; ranks 90ms, local tasks 10ms"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, load(0, 3.0), "ranks 70ms, local tasks 30ms"),
            (30, lost(), "node-1 is lost; restart node-1; ranks 40ms, local tasks 60ms"),
            (40, load(0, 1.0), "ranks 80ms, local tasks 20ms"),
            (
                50,
                Input::Node(NodeEvent::Back { node: NodeId(1) }),
                "node-1 is back; ranks 80ms, local tasks 20ms",
            ),
            (60, load(1, 2.2), "ranks 60ms, local tasks 40ms"),
        ],
    );
}

/// As those of a master before, which had another run file.
#[test]
fn loads_under_another_technique_change_nothing() {
    let mut run = balanced(Technique::DTS_STATIC);
    let begin = "submitted job-0; launch job-0";
    story(&mut run, &[(0, Input::Due, begin), (20, load(0, 9.0), ""), (30, load(1, 9.0), "")]);
}
