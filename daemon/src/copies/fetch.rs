//! Gets a part's snapshot from the partners that hold copies of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpStream,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use anyhow::{Context, bail};
use coswitch_ckpt::{copies::Returning, writer::Moved};
use coswitch_policies::{Bytes, JobId, NodeId};
use rustls::{ClientConnection, StreamOwned};
use tracing::warn;

use super::{
    connect_to,
    wire::{self, Frame},
};
use crate::{
    app::{NodeServices, SEGMENT, SavedPart},
    node::node_name,
    protocol::FetchRequest,
};

struct Holder {
    node: NodeId,
    tls: StreamOwned<ClientConnection, TcpStream>,
    has: BTreeSet<u32>,
}

/// Makes the snapshot a sealed one of this node, from chunks of all partners at once; returns its size.
/// Nothing of it counts before every file was compared with what was sealed. Blocks; stops where `is_void` is
/// set.
///
/// # Errors
/// Where a chunk is on no partner that can be reached, or is damaged on all of them; nothing is left then.
pub(crate) fn fetch(
    node: &NodeServices,
    job: JobId,
    request: &FetchRequest,
    is_void: &AtomicBool,
) -> anyhow::Result<Bytes> {
    let FetchRequest { epoch, owner, scatter, .. } = request;
    let mut failures = Vec::new();
    let mut begin = |partner: NodeId| match ask(node, partner, job, request) {
        Ok(found) => Some(found),
        Err(error) => {
            failures.push(format!("{error:#}"));
            None
        }
    };
    let found: Vec<(Holder, Vec<u8>)> = scatter.ring.iter().filter_map(|node| begin(*node)).collect();
    let (name, owner) = (job.to_string(), node_name(&node.config.run, *owner));
    let mut genuine = None;
    for (holder, bytes) in &found {
        match node.store.read_manifest(bytes, (&name, epoch.0), &owner) {
            Ok(manifest) => {
                genuine = Some((bytes.clone(), manifest));
                break;
            }
            Err(error) => failures.push(format!("{}: {error}", holder.node)),
        }
    }
    let Some((sealed, manifest)) = genuine else { bail!("no copy is left: {}", failures.join("; ")) };
    manifest.origin.check()?;
    let begun = {
        let _not_ended = node.copies.writing()?;
        let writer = node.store.begin_with(&name, epoch.0, SystemTime::now(), manifest.bytes())?;
        Returning::begin(writer, manifest)?
    };
    let mut missing: BTreeSet<u32> = (0..begun.chunk_count()).collect();
    let mut holders: Vec<Holder> =
        found.into_iter().filter(|(_, other)| *other == sealed).map(|(holder, _)| holder).collect();
    let here = Mutex::new(BTreeSet::new());
    // A second holder is asked for what the first one has damaged or not sent.
    while !missing.is_empty() && !holders.is_empty() {
        let plan = share_out(&missing, &holders, |chunk| scatter.holders(chunk).collect());
        if plan.is_empty() {
            break;
        }
        let put = |chunk: u32, bytes: &[u8], checksum| {
            if is_void.load(Ordering::Relaxed) {
                bail!("the application has ended");
            }
            let _not_ended = node.copies.writing()?;
            begun.put(chunk, bytes, checksum)?;
            here.lock().unwrap_or_else(PoisonError::into_inner).insert(chunk);
            Ok(())
        };
        let outcomes: Vec<(NodeId, anyhow::Result<()>)> = std::thread::scope(|scope| {
            let asked = holders.drain(..).filter_map(|mut holder| {
                let wanted = plan.get(&holder.node)?.clone();
                let put = &put;
                let work = move || {
                    wire::write(&mut holder.tls, &Frame::Want(wanted))?;
                    wire::read_chunks(&mut holder.tls, put)
                };
                Some((holder.node, scope.spawn(work)))
            });
            let asked: Vec<_> = asked.collect();
            let join = |(node, thread): (NodeId, std::thread::ScopedJoinHandle<'_, _>)| {
                (node, thread.join().expect("a transfer does not panic"))
            };
            asked.into_iter().map(join).collect()
        });
        let here = here.lock().unwrap_or_else(PoisonError::into_inner);
        missing.retain(|chunk| !here.contains(chunk));
        drop(here);
        let mut failed = BTreeSet::new();
        for (partner, outcome) in outcomes {
            if let Err(error) = outcome {
                warn!(%job, %partner, error = format!("{error:#}"), "a copy is not complete");
                failures.push(format!("{partner}: {error:#}"));
                failed.insert(partner);
            }
        }
        if !missing.is_empty() {
            let others = scatter.ring.iter().filter(|node| !failed.contains(node));
            holders.extend(
                others.filter_map(|node_id| ask(node, *node_id, job, request).ok()).map(|found| found.0),
            );
        }
    }
    if let Some(chunk) = missing.first() {
        bail!("chunk {chunk} is on no partner as it was sealed: {}", failures.join("; "));
    }
    let _not_ended = node.copies.writing()?;
    // The ranks map the segment of this node, and it has to know where the others are.
    let part = SavedPart::placed(&begun.part()?, &request.placement)?;
    let segment = node.config.shm(job).join(SEGMENT);
    let program = begun.program().map(|path| node.store.program_path(&name, path)).transpose()?;
    let moved = Moved { segment: Some(&segment), program: program.as_deref(), part: Some(&part) };
    Ok(Bytes(begun.seal(moved)?))
}

/// Which holder is asked for which chunks: its first one that is there.
fn share_out(
    missing: &BTreeSet<u32>,
    holders: &[Holder],
    order: impl Fn(u32) -> Vec<NodeId>,
) -> BTreeMap<NodeId, Vec<u32>> {
    let mut plan: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
    for chunk in missing {
        let has = |node: &NodeId| holders.iter().any(|one| one.node == *node && one.has.contains(chunk));
        if let Some(node) = order(*chunk).into_iter().find(has) {
            plan.entry(node).or_default().push(*chunk);
        }
    }
    plan
}

/// Asks a partner what it has of the snapshot; with its manifest.
fn ask(
    node: &NodeServices,
    partner: NodeId,
    job: JobId,
    request: &FetchRequest,
) -> anyhow::Result<(Holder, Vec<u8>)> {
    let FetchRequest { epoch, owner, .. } = *request;
    // This node may hold a part of the copy itself.
    let mut tls = connect_to(node, partner)?;
    wire::write(&mut tls, &Frame::Fetch { job, owner, epoch })?;
    match wire::read(&mut tls)? {
        Frame::Manifest { manifest, chunks } => {
            Ok((Holder { node: partner, tls, has: chunks.into_iter().collect() }, manifest))
        }
        other => Err(wire::unexpected(&other)).with_context(|| partner.to_string()),
    }
}
