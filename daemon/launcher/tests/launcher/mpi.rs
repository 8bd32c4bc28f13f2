//! Tests of real MPI programs under the launcher, over the MPI library's own tcp provider. They need root and
//! the MPI library.

use coswitch_launcher::protocol::{ExitStatus, LauncherCommand, LauncherEvent};

use crate::harness::{Node, Setup, TIMEOUT, exited, ranks_with};

const SUCCESS: ExitStatus = ExitStatus::Exited(0);

fn check_output(setup: &Setup, ranks: u32) {
    for rank in 0..ranks {
        let expected = format!("rank {rank} of {ranks}: sum {}\n", ranks * (ranks - 1) / 2);
        assert_eq!(setup.read(&format!("rank-{rank}.out")), expected);
    }
}

#[test]
fn mpi_program_on_one_node_needs_no_fence() {
    for ranks in [1, 2, 4] {
        let setup = Setup::actor(ranks, "well");
        let mut node = setup.launch(&(0..ranks).collect::<Vec<_>>());
        let events = node.events_to_end();
        assert_eq!(
            ranks_with(&events, &SUCCESS),
            (0..ranks).collect(),
            "{events:?} {}",
            setup.read("rank-0.err")
        );
        assert_eq!(events.len(), 1 + ranks as usize, "{events:?}");
        check_output(&setup, ranks);
    }
}

#[test]
fn mpi_program_on_two_nodes_synchronises_by_relayed_fences() {
    let setup = Setup::actor(4, "well");
    let mut nodes = [setup.launch(&[0, 1]), setup.launch(&[2, 3])];
    let mut open = nodes.len();
    let mut fences: Vec<Vec<(String, String)>> = Vec::new();
    let deadline = std::time::Instant::now() + TIMEOUT;
    let (mut well, mut sequences) = (0, 0);
    while open > 0 {
        assert!(std::time::Instant::now() < deadline, "the program ends in time");
        std::thread::sleep(std::time::Duration::from_millis(1));
        for event in nodes.iter_mut().flat_map(|node| std::iter::from_fn(|| node.poll())).collect::<Vec<_>>()
        {
            match event {
                LauncherEvent::Fence { sequence, puts } => {
                    assert_eq!(sequence, sequences + 1);
                    fences.push(puts);
                }
                LauncherEvent::RankExited { status: SUCCESS, .. } => well += 1,
                LauncherEvent::AllExited => open -= 1,
                LauncherEvent::Ready => {}
                other => panic!("{other:?}"),
            }
        }
        if fences.len() == nodes.len() {
            sequences += 1;
            let done = LauncherCommand::FenceDone {
                sequence: sequences,
                puts: fences.drain(..).flatten().collect(),
            };
            nodes.iter_mut().for_each(|node| node.send(&done));
        }
    }
    assert!(sequences >= 2, "MPICH has a barrier before and after the exchange");
    assert_eq!(well, 4);
    nodes.iter_mut().map(Node::reap).for_each(drop);
    check_output(&setup, 4);
}

#[test]
fn abort_is_reported_with_its_code_and_ends_all_ranks() {
    let mut node = Setup::actor(2, "abort").launch(&[0, 1]);
    let events = node.events_to_end();
    match &events[..2] {
        [LauncherEvent::Ready, LauncherEvent::Abort { rank: 1, code: 7, message }] => {
            assert!(message.contains("MPI_Abort"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(events.len(), 4, "both ranks are reported too: {events:?}");
}

#[test]
fn rank_that_exits_without_finalize_ends_the_others() {
    let mut node = Setup::actor(3, "leave").launch(&[0, 1, 2]);
    let events = node.events_to_end();
    let message = "ended without MPI_Finalize".to_owned();
    assert_eq!(events[1..3], [exited(1, SUCCESS), LauncherEvent::Abort { rank: 1, code: 1, message }]);
    assert_eq!(ranks_with(&events, &ExitStatus::Signaled(9)), [0, 2].into());
}
