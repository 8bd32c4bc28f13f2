//! Sends a sealed snapshot to the partners of this node.

use std::{
    collections::BTreeMap,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, bail};
use coswitch_ckpt::manifest::Checksum;
use coswitch_policies::{Bytes, JobId, NodeId};
use rustls::{ClientConnection, StreamOwned};
use tracing::debug;

use super::{
    connect_to, step_back,
    wire::{self, Frame, Offer},
};
use crate::{app::NodeServices, protocol::HeldCopy};

const VOID: &str = "the application has ended";

type Partner = StreamOwned<ClientConnection, TcpStream>;

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
    let mut partners: BTreeMap<NodeId, Partner> = BTreeMap::new();
    for (partner, bytes) in share {
        let offer = Offer { job, copy: copy.clone(), manifest: manifest.clone(), bytes };
        partners.extend(begin(node, partner, offer)?.map(|tls| (partner, tls)));
    }
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
            let tls = partners.get_mut(&partner).expect("it was looked up");
            let sent = wire::write_chunk(tls, chunk, &bytes, checksum);
            sent.with_context(|| format!("failed to send a chunk to {partner}"))?;
        }
    }
    for (partner, tls) in &mut partners {
        let mut finish = || {
            wire::write(tls, &Frame::End)?;
            match wire::read(tls)? {
                Frame::Have => Ok(()),
                other => Err(wire::unexpected(&other)),
            }
        };
        finish().with_context(|| format!("{partner} does not keep the copy"))?;
    }
    Ok(Bytes(snapshot.manifest().bytes()))
}

/// `None` where the partner has its chunks already.
fn begin(node: &NodeServices, partner: NodeId, offer: Offer) -> anyhow::Result<Option<Partner>> {
    let mut tls = connect_to(node, partner)?;
    let answer = wire::write(&mut tls, &Frame::Keep(offer)).and_then(|()| wire::read(&mut tls));
    let understood = || format!("{partner} does not take the copy");
    match answer.with_context(understood)? {
        Frame::Go => Ok(Some(tls)),
        Frame::Have => Ok(None),
        other => Err(wire::unexpected(&other)).with_context(understood),
    }
}
