use std::collections::BTreeSet;

use coswitch_policies::{Bytes, JobId};

use super::*;
use crate::{
    multicast::{Asked, Target},
    protocol::{AppRequest, LaunchRequest, Park, Wait},
};

const JOB: JobId = JobId(7);

fn answer() -> DaemonEvent {
    DaemonEvent::App { job: JOB, event: AppEvent::Discarded }
}

fn said(node: u32, number: u64) -> Said {
    Said { node: NodeId(node), incarnation: 1, number, event: answer(), tag: None }
}

fn key() -> TagKey {
    TagKey::from([1; 32])
}

/// In a session.
fn saying() -> Saying {
    let mut saying = Saying::new(NodeId(3), 1);
    saying.set_key(key());
    saying
}

/// A request to the first nodes of seven, by a tree of radix 2.
fn request(nodes: impl IntoIterator<Item = u32>) -> Multicast {
    let asked = Asked::App { job: JOB, request: AppRequest::Discard };
    let digest = Digest::of(&asked);
    let to = nodes.into_iter().map(|node| (NodeId(node), Target::new(&key(), 1, 1, digest)));
    Multicast { generation: 1, radix: 2, nodes: 7, failed: BTreeSet::new(), to: to.collect(), asked }
}

fn shown(onward: Option<Onward>) -> Option<(Place, Vec<u32>)> {
    onward.map(|(place, said)| (place, said.iter().map(|said| said.node.0).collect()))
}

#[test]
fn answers_of_a_whole_subtree_go_on_as_one_at_once() {
    let now = Instant::now();
    let mut leaf = Gathering::new(NodeId(6));
    assert!(leaf.on_request(&request([6])).is_empty());
    assert_eq!(shown(leaf.on_said(now, said(6, 1))), Some((Place::Node(NodeId(2)), vec![6])));
    let mut inner = Gathering::new(NodeId(0));
    assert!(inner.on_request(&request([0, 2, 3, 6])).is_empty());
    for node in [6, 0, 3] {
        assert_eq!(shown(inner.on_said(now, said(node, 1))), None);
    }
    assert_eq!(shown(inner.on_said(now, said(2, 1))), Some((Place::Master, vec![6, 0, 3, 2])));
    assert_eq!(inner.due(), None);
}

#[test]
fn no_answer_waits_long_for_others() {
    let now = Instant::now();
    let mut inner = Gathering::new(NodeId(0));
    assert!(inner.on_request(&request([0, 2, 3])).is_empty());
    assert_eq!(shown(inner.on_said(now, said(3, 1))), None);
    assert_eq!(shown(inner.on_said(now + WINDOW / 2, said(2, 1))), None);
    assert_eq!(inner.due(), Some(now + WINDOW));
    assert!(inner.on_due(now + WINDOW / 2).is_empty());
    assert_eq!(shown(inner.on_due(now + WINDOW).pop()), Some((Place::Master, vec![3, 2])));
    assert_eq!(inner.due(), None);
    assert_eq!(shown(inner.on_said(now + WINDOW, said(0, 1))), Some((Place::Master, vec![0])));
    assert_eq!(shown(inner.on_said(now, said(3, 2))), Some((Place::Master, vec![3])), "not waited for");
}

#[test]
fn the_next_request_holds_no_answer_back() {
    let now = Instant::now();
    let mut inner = Gathering::new(NodeId(0));
    assert!(inner.on_request(&request([2, 3])).is_empty());
    assert_eq!(shown(inner.on_said(now, said(3, 1))), None);
    assert_eq!(shown(inner.on_request(&request([2, 3])).pop()), Some((Place::Master, vec![3])));
}

#[test]
fn an_answer_goes_by_the_tree_once_and_again_by_the_session_where_it_is_not_heard() {
    let now = Instant::now();
    let mut saying = saying();
    let is_by_tree = |saying: &mut Saying, event| matches!(saying.say(now, event), Way::Tree(_));
    assert!(!is_by_tree(&mut saying, answer()), "it was asked by its session");
    saying.on_asked(Subject::Job(JOB));
    let exited = DaemonEvent::App { job: JOB, event: AppEvent::Exited };
    assert!(!is_by_tree(&mut saying, exited), "its launch has come by the session");
    assert!(is_by_tree(&mut saying, answer()));
    assert!(!is_by_tree(&mut saying, answer()), "another request was meant");
    assert!(saying.on_heard(now, 2).is_empty(), "it may be on its way");
    let again = saying.on_heard(now + AGAIN_AFTER, 2);
    assert_eq!(again.iter().map(|said| said.number).collect::<Vec<_>>(), [3]);
    assert!(saying.on_heard(now + 2 * AGAIN_AFTER, 2).is_empty(), "a session loses nothing");
    saying.on_asked(Subject::Job(JOB));
    assert!(is_by_tree(&mut saying, answer()));
    assert!(saying.on_heard(now + AGAIN_AFTER, 5).is_empty());
    assert!(saying.close().is_empty(), "the master has heard all");
}

#[test]
fn an_answer_that_is_changed_on_its_way_is_not_genuine() {
    let mut saying = saying();
    saying.on_asked(Subject::Job(JOB));
    let Way::Tree(said) = saying.say(Instant::now(), answer()) else { panic!("it was asked by the tree") };
    assert!(said.is_genuine(&key()));
    assert!(!said.is_genuine(&TagKey::from([2; 32])), "of another node");
    let changed = [
        Said { number: 2, ..said.clone() },
        Said { incarnation: 2, ..said.clone() },
        Said { event: DaemonEvent::App { job: JOB, event: AppEvent::Released }, ..said.clone() },
        Said { tag: None, ..said },
    ];
    assert!(!changed.iter().any(|changed| changed.is_genuine(&key())));
}

fn launch(nodes: impl IntoIterator<Item = u32>) -> Multicast {
    let launch = LaunchRequest {
        name: "app".into(),
        placement: Vec::new(),
        command: Vec::new(),
        env: Vec::new(),
        cwd: "/".into(),
        umask: 0,
        user: None,
        memory: Bytes(0),
        output: "/".into(),
        wait: Wait::default(),
        park: Park::default(),
        life: 1,
        program: None,
    };
    let asked = Asked::App { job: JOB, request: AppRequest::Launch(Box::new(launch)) };
    Multicast { asked, ..request(nodes) }
}

fn ended(node: u32, number: u64) -> Said {
    Said { event: DaemonEvent::App { job: JOB, event: AppEvent::Exited }, ..said(node, number) }
}

/// Other answers come between the launch and the end.
#[test]
fn the_end_of_all_ranks_goes_up_as_one_report_however_late() {
    let now = Instant::now();
    let mut inner = Gathering::new(NodeId(0));
    assert!(inner.on_request(&launch([0, 2, 3, 6])).is_empty());
    let later = now + 1000 * WINDOW;
    for node in [0, 2, 3, 6] {
        let all = shown(inner.on_said(now, said(node, 1)));
        assert_eq!(all.is_some(), node == 6);
    }
    assert!(inner.on_request(&request([0, 2, 3, 6])).is_empty());
    for node in [2, 6, 0] {
        assert_eq!(shown(inner.on_said(later, ended(node, 2))), None);
    }
    assert_eq!(shown(inner.on_said(later, ended(3, 2))), Some((Place::Master, vec![2, 6, 0, 3])));

    let mut saying = saying();
    launch([3]).asked.subjects().for_each(|subject| saying.on_asked(subject));
    let event = ended(3, 1).event;
    assert!(matches!(saying.say(now, event.clone()), Way::Tree(_)));
    assert!(matches!(saying.say(now, event), Way::Session(_)), "of another launch, by the session");
}

#[test]
fn a_job_that_is_released_is_not_waited_for() {
    let now = Instant::now();
    let mut inner = Gathering::new(NodeId(0));
    assert!(inner.on_request(&launch([0, 2])).is_empty());
    assert_eq!(shown(inner.on_said(now, ended(2, 1))), None);
    let release = Asked::App { job: JOB, request: AppRequest::Release { last_word: None } };
    let before = inner.on_request(&Multicast { asked: release, ..request([0, 2]) });
    assert_eq!(before.len(), 1, "what was said goes on");
    assert_eq!(shown(inner.on_said(now, ended(0, 1))), Some((Place::Master, vec![0])), "by itself");
}

#[test]
fn invented_requests_fill_no_memory_and_what_was_said_goes_on() {
    let now = Instant::now();
    let of = |job| Asked::App { job: JobId(job), request: AppRequest::Discard };
    let mut inner = Gathering::new(NodeId(0));
    assert!(inner.on_request(&request([2, 3])).is_empty());
    assert_eq!(shown(inner.on_said(now, said(3, 1))), None);
    let invented = Multicast { nodes: 1 << 16, ..request(1..1 << 16) };
    let mut went_on = Vec::new();
    for job in 100..100 + 2 * (OPEN_MAX >> 16) as u32 {
        went_on.extend(inner.on_request(&Multicast { asked: of(job), ..invented.clone() }));
        assert!(inner.open <= OPEN_MAX);
    }
    assert_eq!(went_on.len(), 1, "the answer to the only genuine one");
    assert_eq!(shown(went_on.pop()), Some((Place::Master, vec![3])));
    assert_eq!(shown(inner.on_said(now, said(2, 1))), Some((Place::Master, vec![2])), "by itself");
    let kept: Vec<u32> = inner
        .waiting
        .keys()
        .map(|subject| match subject {
            Subject::Job(job) => job.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kept, (100 + 2 * 64 - kept.len() as u32..100 + 2 * 64).collect::<Vec<_>>(), "the latest");
    assert_eq!(kept.len(), 63);
    for job in kept {
        inner.on_request(&Multicast { asked: of(job), ..request([2]) });
    }
    assert_eq!((inner.open, inner.by_age.len()), (63 * (REQUEST + 1), 63), "counted anew");
}
