//! Sends a sealed snapshot to the partners of this node.

use std::{
    collections::BTreeMap,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use anyhow::{Context, bail};
use coswitch_ckpt::manifest::Checksum;
use coswitch_policies::{Bytes, JobId, NodeId};
use rustls::{ClientConnection, StreamOwned};
use tracing::debug;

use super::{
    TURN_EVERY, connect_to, step_back,
    wire::{self, Frame, Offer},
    working_time,
};
use crate::{app::NodeServices, protocol::HeldCopy};

const VOID: &str = "the application has ended";

/// A partner, and the size of its chunks.
struct Partner {
    tls: StreamOwned<ClientConnection, TcpStream>,
    bytes: u64,
}

type Partners = BTreeMap<NodeId, Partner>;

/// Returns the size of the snapshot when all partners have their chunks on their disks. Blocks; to be called
/// on a thread of its own, which works below all others from then on. Stops where `is_void` is set.
///
/// # Errors
/// Where a partner cannot be reached or has no room, or the snapshot cannot be read.
pub(crate) fn send(
    node: &NodeServices,
    job: JobId,
    copy: &HeldCopy,
    is_void: &AtomicBool,
) -> anyhow::Result<Bytes> {
    step_back();
    let _one_at_a_time = node.copies.outgoing(is_void).context(VOID)?;
    let sent = transfer(node, job, copy, is_void);
    // This may have reached the partners after the order to remove the copy.
    if is_void.load(Ordering::Relaxed) {
        for partner in &copy.scatter.ring {
            let forget = Frame::Forget(job, copy.clone());
            let told = connect_to(node, *partner).and_then(|mut tls| wire::write(&mut tls, &forget));
            if let Err(error) = told {
                debug!(%job, %partner, error = format!("{error:#}"), "a void copy may be left");
            }
        }
    }
    sent
}

fn transfer(node: &NodeServices, job: JobId, copy: &HeldCopy, is_void: &AtomicBool) -> anyhow::Result<Bytes> {
    let HeldCopy { epoch, scatter, .. } = copy;
    let snapshot = node.store.snapshot(&job.to_string(), epoch.0)?;
    let (chunks, manifest) = snapshot.to_copy()?;
    let mut share: BTreeMap<NodeId, u64> = scatter.ring.iter().map(|partner| (*partner, 0)).collect();
    for chunk in 0..chunks.count() {
        for partner in scatter.holders(chunk) {
            *share.entry(partner).or_default() += chunks.bytes_of(chunk);
        }
    }
    let mut asked = Partners::new();
    for (partner, bytes) in share {
        let offer = Offer { job, copy: copy.clone(), manifest: manifest.clone(), bytes };
        asked.insert(partner, begin(node, partner, offer)?);
    }
    let mut partners = taking(asked)?;
    for chunk in 0..chunks.count() {
        let holders = scatter.holders(chunk).filter(|partner| partners.contains_key(partner));
        let holders: Vec<NodeId> = holders.collect();
        if holders.is_empty() {
            continue;
        }
        let bytes = chunks.read(chunk)?;
        let checksum = Checksum::of(&bytes);
        for partner in holders {
            if is_void.load(Ordering::Relaxed) {
                bail!(VOID);
            }
            let tls = &mut partners.get_mut(&partner).expect("it was looked up").tls;
            let sent = wire::write_chunk(tls, chunk, &bytes, checksum);
            sent.with_context(|| format!("failed to send a chunk to {partner}"))?;
        }
    }
    finish(&mut partners)?;
    Ok(Bytes(snapshot.manifest().bytes()))
}

/// Does not wait for the answer: the partner may have to read a copy that it holds.
fn begin(node: &NodeServices, partner: NodeId, offer: Offer) -> anyhow::Result<Partner> {
    let (mut tls, bytes) = (connect_to(node, partner)?, offer.bytes);
    wire::write(&mut tls, &Frame::Keep(offer)).with_context(|| not_taken(partner))?;
    Ok(Partner { tls, bytes })
}

/// The partners that have not got their chunks already, once all have answered.
fn taking(asked: Partners) -> anyhow::Result<Partners> {
    let (since, mut partners) = (Instant::now(), Partners::new());
    for (id, mut partner) in asked {
        let takes = partner.answer(since).and_then(|answer| match answer {
            Frame::Go => Ok(true),
            Frame::Have => Ok(false),
            other => Err(wire::unexpected(&other)),
        });
        if takes.with_context(|| not_taken(id))? {
            partners.insert(id, partner);
        }
    }
    Ok(partners)
}

/// Returns when all partners have their chunks on their disks. They sync them side by side.
fn finish(partners: &mut Partners) -> anyhow::Result<()> {
    let not_kept = |id: &NodeId| format!("{id} does not keep the copy");
    for (id, partner) in partners.iter_mut() {
        wire::write(&mut partner.tls, &Frame::End).with_context(|| not_kept(id))?;
    }
    let since = Instant::now();
    for (id, partner) in partners {
        let kept = partner.answer(since).and_then(|answer| match answer {
            Frame::Have => Ok(()),
            other => Err(wire::unexpected(&other)),
        });
        kept.with_context(|| not_kept(id))?;
    }
    Ok(())
}

fn not_taken(partner: NodeId) -> String {
    format!("{partner} does not take the copy")
}

impl Partner {
    /// Waits for the answer to a frame that was sent at that time, for as long as the work for it may take.
    fn answer(&mut self, since: Instant) -> anyhow::Result<Frame> {
        let left = working_time(self.bytes).saturating_sub(since.elapsed());
        // A limit of zero is none, and the answer may already be here.
        self.tls.sock.set_read_timeout(Some(left.max(TURN_EVERY)))?;
        wire::read(&mut self.tls)
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, sync::mpsc, time::Duration};

    use rustls::ServerConnection;

    use super::*;
    use crate::{
        copies::SILENCE,
        pki::{Authority, Holder},
        plane::{
            LinkEnd, LinkRules,
            connect::{self, Accepted, COPIES},
        },
    };

    const LIMIT: Duration = Duration::from_secs(10);

    fn end(node: u32) -> LinkEnd {
        LinkEnd { node: NodeId(node), incarnation: 1 }
    }

    /// A partner of node 0, whose end of the connection is served by `serve`.
    fn partner(
        authority: &Authority,
        id: u32,
        serve: impl FnOnce(StreamOwned<ServerConnection, TcpStream>) + Send + 'static,
    ) -> (NodeId, Partner) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let certify = |node| authority.certify(Holder::Node(NodeId(node))).unwrap();
        let (server, client) = (certify(id).server().unwrap(), certify(0).client().unwrap());
        std::thread::spawn(move || {
            let stream = listener.accept().unwrap().0;
            match connect::accept_any(stream, end(id), LinkRules::default(), &server) {
                Ok(Accepted::Copies(_, tls)) => serve(*tls),
                _ => panic!("the connection is for copies"),
            }
        });
        let to = (NodeId(id), address);
        let (_, tls) = connect::connect_for(COPIES, to, end(0), &client, LIMIT, LIMIT).unwrap();
        (NodeId(id), Partner { tls, bytes: 1 })
    }

    #[test]
    fn all_partners_sync_their_chunks_at_once() {
        let authority = Authority::new().unwrap();
        let (told, heard) = mpsc::channel();
        let first = partner(&authority, 1, move |mut tls| {
            assert!(matches!(wire::read(&mut tls), Ok(Frame::End)));
            heard.recv_timeout(LIMIT).expect("the second one syncs as well");
            wire::write(&mut tls, &Frame::Have).unwrap();
        });
        let second = partner(&authority, 2, move |mut tls| {
            assert!(matches!(wire::read(&mut tls), Ok(Frame::End)));
            told.send(()).unwrap();
            wire::write(&mut tls, &Frame::Have).unwrap();
        });
        finish(&mut Partners::from([first, second])).unwrap();
    }

    #[test]
    fn only_partners_that_lack_their_chunks_get_them_and_a_refusal_ends_the_copy() {
        let authority = Authority::new().unwrap();
        let answering = |id, answer: Frame| {
            partner(&authority, id, move |mut tls| wire::write(&mut tls, &answer).unwrap())
        };
        let partners = Partners::from([answering(1, Frame::Have), answering(2, Frame::Go)]);
        assert_eq!(taking(partners).unwrap().into_keys().collect::<Vec<_>>(), [NodeId(2)]);
        let partners = Partners::from([answering(1, Frame::Go), answering(2, Frame::No("full".into()))]);
        let refused = taking(partners).err().expect("one has no room");
        assert_eq!(format!("{refused:#}"), "node-2 does not take the copy: full");
    }

    #[test]
    fn an_answer_has_the_time_that_its_work_may_take_and_no_more() {
        assert_eq!(working_time(640 << 20), SILENCE + Duration::from_secs(10));
        let authority = Authority::new().unwrap();
        let (_open, closed) = mpsc::channel::<()>();
        let (_, mut silent) = partner(&authority, 1, move |_tls| {
            let _ = closed.recv();
        });
        let began = Instant::now();
        assert!(silent.answer(began - working_time(silent.bytes)).is_err());
        assert!(began.elapsed() < LIMIT);
    }
}
