use std::net::SocketAddr;

use coswitch_daemon::pki::{Authority, Holder};
use tokio::net::TcpListener;

use super::*;

const LOST_AFTER: Duration = Duration::from_secs(60);

fn address(node: u32, listener: &TcpListener) -> Address {
    let at: SocketAddr = listener.local_addr().unwrap();
    Address { node: NodeId(node), control: at, data: at }
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
