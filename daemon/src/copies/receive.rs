//! Serves other daemons: keeps chunks of their snapshots, and gives them back.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use coswitch_ckpt::copies::HeldCopy;
use coswitch_policies::{Epoch, JobId, NodeId};
use rustls::{ServerConnection, StreamOwned};
use tracing::{info, warn};

use super::{
    SILENCE, copy_id, probe, step_back,
    wire::{self, Frame, Offer},
    working_time,
};
use crate::{app::NodeServices, plane::LinkEnd, protocol};

type Owner = StreamOwned<ServerConnection, TcpStream>;

/// Answers one connection. Blocks.
///
/// # Errors
/// Where the connection breaks.
pub(crate) fn serve(node: &NodeServices, peer: LinkEnd, mut tls: Owner) -> Result<(), String> {
    if node.links.is_past(peer.node, peer.incarnation) {
        return Err(format!("copies of an earlier daemon of {}", peer.node));
    }
    let limits = tls.sock.set_read_timeout(Some(SILENCE)).and(tls.sock.set_write_timeout(Some(SILENCE)));
    limits.and_then(|()| probe(&tls.sock)).map_err(|error| error.to_string())?;
    let answered = match wire::read(&mut tls) {
        Ok(Frame::Keep(offer)) if offer.copy.owner == peer.node => {
            step_back();
            keep(node, &mut tls, &offer)
        }
        Ok(Frame::Forget(job, copy)) if copy.owner == peer.node => forget(node, job, &copy),
        Ok(Frame::Fetch { job, owner, epoch }) => give(node, &mut tls, job, owner, epoch),
        Ok(other) => Err(wire::unexpected(&other)),
        Err(error) => Err(error),
    };
    answered.map_err(|error| {
        let reason = format!("{error:#}");
        warn!(peer = %peer.node, reason, "a copy was not kept or given");
        // The other daemon may have gone.
        let _ = wire::write(&mut tls, &Frame::No(reason.clone()));
        reason
    })
}

fn keep(node: &NodeServices, tls: &mut Owner, offer: &Offer) -> anyhow::Result<()> {
    let Offer { job, copy: of, manifest, bytes } = offer;
    let id = copy_id(*job, of.owner, of.epoch);
    let note = serde_json::to_string(of)?;
    if node.store.copy(&id).is_ok_and(|copy| is_same(&copy, &note, manifest)) {
        return wire::write(tls, &Frame::Have);
    }
    let mut copy = {
        let _not_ended = node.copies.writing()?;
        node.store.begin_copy(&id, manifest, *bytes, &note)?
    };
    let stream = tls.sock.try_clone()?;
    // The owner first waits for all its partners, and one may have to read what it holds.
    stream.set_read_timeout(Some(working_time(*bytes) + SILENCE))?;
    wire::write(tls, &Frame::Go)?;
    wire::read_chunks(tls, |chunk, bytes, checksum| {
        stream.set_read_timeout(Some(SILENCE))?;
        let _not_ended = node.copies.writing()?;
        Ok(copy.put(chunk, bytes, checksum)?)
    })?;
    {
        let _not_ended = node.copies.writing()?;
        copy.finish()?;
    }
    info!(%job, owner = %of.owner, epoch = %of.epoch, bytes, "a copy is kept here");
    wire::write(tls, &Frame::Have)
}

fn forget(node: &NodeServices, job: JobId, copy: &protocol::HeldCopy) -> anyhow::Result<()> {
    let (id, note) = (copy_id(job, copy.owner, copy.epoch), serde_json::to_string(copy)?);
    match node.store.copy(&id) {
        Ok(held) if held.note == note => Ok(held.remove()?),
        // It never came, or is of another launch.
        _ => Ok(()),
    }
}

/// Whether a copy has what an offer would bring, and nothing of it has changed.
fn is_same(copy: &HeldCopy, note: &str, manifest: &[u8]) -> bool {
    let same_manifest = copy.manifest().is_ok_and(|held| held == manifest);
    same_manifest && copy.note == note && copy.chunks().all(|chunk| copy.read(chunk).is_ok())
}

fn give(
    node: &NodeServices,
    tls: &mut (impl Read + Write),
    job: JobId,
    owner: NodeId,
    epoch: Epoch,
) -> anyhow::Result<()> {
    let copy = node.store.copy(&copy_id(job, owner, epoch))?;
    let (manifest, chunks) = (copy.manifest()?, copy.chunks().collect());
    wire::write(tls, &Frame::Manifest { manifest, chunks })?;
    let wanted = match wire::read(tls)? {
        Frame::Want(wanted) => wanted,
        other => return Err(wire::unexpected(&other)),
    };
    for chunk in wanted {
        let (bytes, checksum) = copy.read(chunk)?;
        wire::write_chunk(tls, chunk, &bytes, checksum)?;
    }
    wire::write(tls, &Frame::End)
}
