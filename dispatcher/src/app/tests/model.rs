//! Property tests: random orders, and simulated daemons that succeed, fail or stay silent, each at its own
//! speed.

mod daemons;

use self::daemons::{Luck, Model};
use super::*;

#[derive(Clone, Copy, Debug)]
enum Act {
    Order(Order),
    Step(u32, Luck),
    Seal(u32, bool),
    /// A snapshot arrives at the other node.
    Copy(u32, bool),
    Replace([usize; 2]),
    Lose(u32),
    /// Without its processes.
    LoseDaemon(u32),
    /// With its disk.
    LoseDisk(u32),
    Regain(u32),
    /// For the replacement of a daemon.
    Settle,
    Pause,
    Continue,
}

/// `losses`: whether nodes are lost as well; `disks`: and their disks.
fn act(failures: u32, losses: u32, disks: u32) -> impl Strategy<Value = Act> {
    let bad = prop::sample::select(vec![Luck::FailsAlive, Luck::FailsDead, Luck::Silent]);
    let luck = prop_oneof![30 => Just(Luck::Well), failures => bad];
    let seal = prop_oneof![30 => Just(true), failures => Just(false)];
    prop_oneof![
        2 => prop::sample::select(ORDERS.to_vec()).prop_map(Act::Order),
        1 => Just(Act::Order(Order::Checkpoint)),
        8 => (0..2u32, luck).prop_map(|(node, luck)| Act::Step(node, luck)),
        4 => (0..2u32, seal, 0..4u32).prop_map(|(node, well, which)| match which {
            0 => Act::Copy(node, well),
            _ => Act::Seal(node, well),
        }),
        1 => prop::array::uniform2(0..3usize).prop_map(Act::Replace),
        losses => (0..2u32).prop_map(Act::Lose),
        losses => (0..2u32).prop_map(Act::LoseDaemon),
        losses.min(disks) => (0..2u32).prop_map(Act::LoseDisk),
        2 * losses => (0..2u32).prop_map(Act::Regain),
        1 => prop::sample::select(vec![Act::Settle, Act::Settle, Act::Pause, Act::Continue]),
    ]
}

fn play(park: Park, acts: Vec<Act>) -> Model {
    let mut model = begin(park, acts);
    model.drain();
    model.assert_reported_where_it_rests();
    model
}

/// Without waiting until it rests.
fn begin(park: Park, acts: Vec<Act>) -> Model {
    let mut model = Model::new(park);
    model.feed(Input::Order(Order::Launch));
    for act in acts {
        match act {
            Act::Order(order) => model.feed(Input::Order(order)),
            Act::Step(node, luck) => model.step(node, luck),
            Act::Seal(node, well) => model.seal(node, well),
            Act::Copy(node, well) => model.copy(node, well),
            Act::Replace(arrived) => model.replace(arrived),
            Act::Lose(node) => model.lose(node),
            Act::LoseDaemon(node) => model.lose_daemon(node),
            Act::LoseDisk(node) => model.lose_disk(node),
            Act::Regain(node) => model.regain(node),
            Act::Settle => model.feed(Input::Settle),
            Act::Pause => model.feed(Input::Pause),
            Act::Continue => model.feed(Input::Continue),
        }
    }
    model
}

fn parks() -> impl Strategy<Value = Park> {
    prop::sample::select(vec![Park::Criu, Park::PageOut])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// For all orders, failures and replaced masters: the application comes to rest in the state it has
    /// reported, all nodes are in that state, and a gang never runs in part.
    #[test]
    fn it_rests_in_the_state_it_reports_whatever_fails(
        park in parks(),
        acts in prop::collection::vec(act(2, 0, 0), 0..150),
    ) {
        play(park, acts);
    }

    /// The same, where daemons are killed as well: and no node hears messages of another life.
    #[test]
    fn it_rests_in_the_state_it_reports_whatever_nodes_are_lost(
        park in parks(),
        acts in prop::collection::vec(act(1, 1, 1), 0..150),
    ) {
        play(park, acts);
    }

    /// An application that has a snapshot on all nodes is not launched again because nodes were lost.
    #[test]
    fn what_is_sealed_everywhere_is_not_lost_with_nodes(
        before in prop::collection::vec(act(0, 0, 0), 0..60),
        losses in prop::collection::vec(act(0, 1, 0), 0..60),
    ) {
        let mut model = play(Park::Criu, before);
        let common = model.daemons[0].sealed.intersection(&model.daemons[1].sealed).next().is_some();
        if !common || model.story.app.has_ended() {
            return Ok(());
        }
        for act in losses {
            match act {
                Act::Lose(node) => model.lose(node),
                Act::LoseDaemon(node) => model.lose_daemon(node),
                Act::Regain(node) => model.regain(node),
                Act::Step(node, luck) => model.step(node, luck),
                Act::Seal(node, well) => model.seal(node, well),
                Act::Order(order) => model.feed(Input::Order(order)),
                _ => {}
            }
        }
        model.drain();
        model.assert_reported_where_it_rests();
        prop_assert!(!model.story.app.has_ended(), "{:?}", model.last);
    }

    /// Nor because the disk of a node is lost, where another one has the copy of what it had sealed.
    #[test]
    fn what_is_copied_is_not_lost_with_a_disk(
        before in prop::collection::vec(act(0, 0, 0), 0..60),
        lost in 0..2u32,
        meanwhile in prop::collection::vec(act(0, 0, 0), 0..10),
    ) {
        let mut model = play(Park::Criu, before);
        let common = model.daemons[0].sealed.intersection(&model.daemons[1].sealed).next().is_some();
        if !common || model.story.app.has_ended() {
            return Ok(());
        }
        model.lose_disk(lost);
        for act in meanwhile {
            if let Act::Step(node, luck) = act {
                model.step(node, luck);
            }
        }
        model.drain();
        model.assert_reported_where_it_rests();
        prop_assert!(!model.story.app.has_ended(), "{:?}", model.last);
    }

    /// However much longer copies take than turns: the snapshots of which there are whole copies stay, and
    /// what is left of those on their way does not count.
    #[test]
    fn what_was_copied_is_not_lost_while_newer_copies_are_on_their_way(
        before in prop::collection::vec(act(0, 0, 0), 0..150),
        lost in 0..2u32,
        meanwhile in prop::collection::vec(act(0, 0, 0), 0..10),
    ) {
        let mut model = begin(Park::Criu, before);
        if model.story.app.newest_copied().is_none() || model.story.app.has_ended() {
            return Ok(());
        }
        model.lose_disk(lost);
        for act in meanwhile {
            match act {
                Act::Step(node, luck) => model.step(node, luck),
                Act::Seal(node, well) => model.seal(node, well),
                Act::Copy(node, well) => model.copy(node, well),
                _ => {}
            }
        }
        model.drain();
        model.assert_reported_where_it_rests();
        prop_assert!(!model.story.app.has_ended(), "{:?}", model.last);
    }

    #[test]
    fn the_last_order_is_obeyed_where_nothing_fails(
        park in parks(),
        acts in prop::collection::vec(act(0, 0, 0), 0..150),
        last in prop::sample::select(ORDERS.to_vec()),
    ) {
        let mut model = play(park, acts);
        let before = model.story.app.state.clone();
        if model.last == Some(Report::Unlaunched) {
            return Ok(());
        }
        model.feed(Input::Order(last));
        model.drain();
        model.assert_reported_where_it_rests();
        let state = &model.story.app.state;
        let obeyed = match (last, before) {
            (Order::Park, _) | (Order::Suspend | Order::Resume | Order::Launch, State::Parked) => {
                matches!(state, State::Parked)
            }
            (Order::Restore | Order::Resume, _) | (Order::Prefetch | Order::Launch, State::Running) => {
                matches!(state, State::Running)
            }
            _ => matches!(state, State::Suspended),
        };
        prop_assert!(obeyed, "{last:?} led to {state:?}: {:?}", model.last);
    }
}
