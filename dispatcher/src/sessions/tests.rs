use std::net::SocketAddr;

use coswitch_daemon::{
    pki::{Authority, Holder},
    wire,
};
use tokio::net::TcpListener;

use super::*;

const LOST_AFTER: Duration = Duration::from_secs(60);

fn address(node: u32, listener: &TcpListener) -> Address {
    let at: SocketAddr = listener.local_addr().unwrap();
    Address { node: NodeId(node), control: at, data: at }
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// The daemon of a node that has followed the master of generation `followed`: it answers the next one.
fn answer(authority: &Authority, node: u32, listener: TcpListener, mut followed: u64) {
    let identity = authority.certify(Holder::Node(NodeId(node))).unwrap();
    tokio::spawn(async move {
        let mut door = session::Door::new(listener);
        let mut stream = door.accept(&identity, NodeId(node), 7, &mut followed).await.unwrap();
        while let Ok(Some(request)) = wire::read::<Request>(&mut stream).await {
            let event = match request {
                Request::Inventory => DaemonEvent::Inventory(Inventory::default()),
                Request::Join { .. } => DaemonEvent::Joined,
                _ => continue,
            };
            // The master may have gone.
            let _ = wire::write(&mut stream, &event).await;
        }
    });
}

/// A daemon that ends whenever a master connects to it.
fn hang_up(listener: TcpListener) {
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
}

/// The master of this generation comes to node 0, whose daemon answers, and to node 1.
async fn connect(
    authority: &Authority,
    generation: u64,
    node_1: impl FnOnce(TcpListener),
) -> Result<Sessions, ConnectError> {
    let (first, second) = (listen().await, listen().await);
    let addresses = [address(0, &first), address(1, &second)];
    answer(authority, 0, first, 0);
    node_1(second);
    let (events, _heard) = unbounded_channel();
    let master = authority.certify(Holder::Head).unwrap();
    let patience = (LOST_AFTER, Heartbeats::default());
    Sessions::connect(&addresses, &[], &master, generation, patience, events).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_master_goes_on_without_nodes_that_do_not_answer() {
    let authority = Authority::new().unwrap();
    let master = authority.certify(Holder::Head).unwrap();
    let (living, silent) = (listen().await, [listen().await, listen().await]);
    let addresses = [address(0, &living), address(1, &silent[0]), address(2, &silent[1])];
    answer(&authority, 0, living, 1);
    let (events, mut heard) = unbounded_channel();
    let patience = (LOST_AFTER, Heartbeats::default());
    let began = Instant::now();
    let sessions = Sessions::connect(&addresses, &[], &master, 2, patience, events).await.unwrap();
    assert!(began.elapsed() < CONNECT_LIMIT * 3 / 2, "one was waited for after the other");
    assert_eq!(sessions.lost(), BTreeSet::from([NodeId(1), NodeId(2)]));
    assert_eq!(sessions.inventories().into_keys().collect::<Vec<_>>(), [NodeId(0)]);
    let mut told = BTreeSet::new();
    while let Ok(event) = heard.try_recv() {
        let NodeEvent::Lost { node, reason } = event else { continue };
        assert!(reason.contains("silent"), "{reason}");
        told.insert(node);
    }
    assert_eq!(told, sessions.lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_a_lost_node_to_a_later_master_alone() {
    let authority = Authority::new().unwrap();
    let sessions = connect(&authority, 2, hang_up).await.unwrap();
    assert_eq!(sessions.lost(), BTreeSet::from([NodeId(1)]));
    let first = connect(&authority, 1, hang_up).await.err();
    assert!(matches!(first, Some(ConnectError::Reach { node: NodeId(1), .. })));
    let (events, _heard) = unbounded_channel();
    let (only, master) = (listen().await, authority.certify(Holder::Head).unwrap());
    let (addresses, patience) = ([address(0, &only)], (LOST_AFTER, Heartbeats::default()));
    hang_up(only);
    let alone = Sessions::connect(&addresses, &[], &master, 2, patience, events).await.err();
    assert!(matches!(alone, Some(ConnectError::Reach { node: NodeId(0), .. })), "no node is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_refuses_a_later_master_is_not_lost() {
    let (authority, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let newer = connect(&authority, 2, |listener| answer(&authority, 1, listener, 9)).await.err();
    assert!(matches!(newer, Some(ConnectError::Reach { source: SessionError::Refused(_), .. })), "{newer:?}");
    let stranger = connect(&authority, 2, |listener| answer(&other, 1, listener, 1)).await.err();
    let is_refused = matches!(stranger, Some(ConnectError::Reach { source: SessionError::Connect(_), .. }));
    assert!(is_refused, "{stranger:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_answer_delays_the_return_of_no_other() {
    let authority = Authority::new().unwrap();
    let (master, daemon) =
        (authority.certify(Holder::Head).unwrap(), authority.certify(Holder::Node(NodeId(1))).unwrap());
    let (events, _heard) = unbounded_channel();
    let absent = [(NodeId(0), "it died".into()), (NodeId(1), "it died".into())];
    let patience = (LOST_AFTER, Heartbeats::default());
    let sessions = Sessions::connect(&[], &absent, &master, 1, patience, events).await.unwrap();
    let cut_off = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let waiting = tokio::spawn({
        let (sessions, address) = (sessions.clone(), address(0, &cut_off));
        async move { sessions.connect_again(&address).await }
    });
    let _silent = cut_off.accept().await.unwrap();
    // Its daemon follows a later master, and says so at once.
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to_other = address(1, &other);
    tokio::spawn(async move {
        let mut generation = 9;
        let _ = session::Door::new(other).accept(&daemon, NodeId(1), 1, &mut generation).await;
    });
    let answer = tokio::time::timeout(CONNECT_LIMIT / 2, sessions.connect_again(&to_other)).await;
    let refused = answer.expect("it does not wait for the first node").unwrap_err();
    assert!(matches!(refused, ConnectError::Reach { node: NodeId(1), source: SessionError::Refused(_) }));
    assert!(!waiting.is_finished());
    waiting.abort();
}
