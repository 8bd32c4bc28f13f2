//! Real MPI programs under the launcher, with the MPI library's own tcp provider: PMI as MPICH speaks it. Needs root and
//! the MPI library.

use coswitch_launcher::protocol::{ExitStatus, LauncherCommand, LauncherEvent};

use crate::stage::{Node, PATIENCE, Scene, exited, ranks_with};

const WELL: ExitStatus = ExitStatus::Exited(0);

fn check_output(scene: &Scene, ranks: u32) {
    for rank in 0..ranks {
        let expected = format!("rank {rank} of {ranks}: sum {}\n", ranks * (ranks - 1) / 2);
        assert_eq!(scene.read(&format!("rank-{rank}.out")), expected);
    }
}

#[test]
fn an_mpi_program_on_one_node_needs_no_fence() {
    for ranks in [1, 2, 4] {
        let scene = Scene::actor(ranks, "well");
        let mut node = scene.launch(&(0..ranks).collect::<Vec<_>>());
        let events = node.events_to_end();
        assert_eq!(
            ranks_with(&events, &WELL),
            (0..ranks).collect(),
            "{events:?} {}",
            scene.read("rank-0.err")
        );
        assert_eq!(events.len(), 1 + ranks as usize, "{events:?}");
        check_output(&scene, ranks);
    }
}

#[test]
fn an_mpi_program_on_two_nodes_meets_through_relayed_fences() {
    let scene = Scene::actor(4, "well");
    let mut nodes = [scene.launch(&[0, 1]), scene.launch(&[2, 3])];
    let mut open = nodes.len();
    let mut fences: Vec<Vec<(String, String)>> = Vec::new();
    let deadline = std::time::Instant::now() + PATIENCE;
    let (mut well, mut sequences) = (0, 0);
    while open > 0 {
        assert!(std::time::Instant::now() < deadline, "it ends in time");
        std::thread::sleep(std::time::Duration::from_millis(1));
        for event in nodes.iter_mut().flat_map(|node| std::iter::from_fn(|| node.poll())).collect::<Vec<_>>()
        {
            match event {
                LauncherEvent::Fence { sequence, puts } => {
                    assert_eq!(sequence, sequences + 1);
                    fences.push(puts);
                }
                LauncherEvent::RankExited { status: WELL, .. } => well += 1,
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
            nodes.iter_mut().for_each(|node| node.tell(&done));
        }
    }
    assert!(sequences >= 2, "MPICH has a barrier before and after the exchange");
    assert_eq!(well, 4);
    nodes.iter_mut().map(Node::reap).for_each(drop);
    check_output(&scene, 4);
}

#[test]
fn an_abort_is_reported_with_its_code_and_ends_all() {
    let mut node = Scene::actor(2, "abort").launch(&[0, 1]);
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
fn a_rank_that_leaves_without_finalize_does_not_leave_the_others_waiting() {
    let mut node = Scene::actor(3, "leave").launch(&[0, 1, 2]);
    let events = node.events_to_end();
    let message = "ended without MPI_Finalize".to_owned();
    assert_eq!(events[1..3], [exited(1, WELL), LauncherEvent::Abort { rank: 1, code: 1, message }]);
    assert_eq!(ranks_with(&events, &ExitStatus::Signaled(9)), [0, 2].into());
}
