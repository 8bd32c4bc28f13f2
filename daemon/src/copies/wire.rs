//! Frames of a connection for copies: a length, a message, and the bytes of a chunk where it has one.

use std::io::{Read, Write};

use anyhow::{Context, bail};
use coswitch_ckpt::{copies::CHUNK_BYTES, manifest::Checksum};
use coswitch_policies::{Epoch, JobId, NodeId};
use serde::{Deserialize, Serialize};

use crate::protocol::HeldCopy;

/// A manifest has at most 16 MiB.
const FRAME_MAX: u32 = 17 << 20;

/// A message, in either direction.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Frame {
    /// Keep the chunks that follow.
    Keep(Offer),
    /// Send them.
    Go,
    /// They are here, complete and durable.
    Have,
    /// The reason.
    No(String),
    /// This many bytes of a chunk follow.
    Chunk {
        chunk: u32,
        bytes: u32,
        checksum: u128,
    },
    End,
    /// What is there of this snapshot?
    Fetch {
        job: JobId,
        owner: NodeId,
        epoch: Epoch,
    },
    /// These chunks, of the snapshot with this manifest.
    Manifest {
        manifest: Vec<u8>,
        chunks: Vec<u32>,
    },
    /// Send these.
    Want(Vec<u32>),
    /// Remove this copy, if it is there: the application has ended.
    Forget(JobId, HeldCopy),
}

/// A snapshot that a partner is to keep in part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) job: JobId,
    pub(super) copy: HeldCopy,
    pub(super) manifest: Vec<u8>,
    /// What will come, in bytes.
    pub(super) bytes: u64,
}

pub(super) fn write(to: &mut impl Write, frame: &Frame) -> anyhow::Result<()> {
    let message = postcard::to_stdvec(frame)?;
    to.write_all(&u32::try_from(message.len())?.to_le_bytes())?;
    to.write_all(&message)?;
    Ok(to.flush()?)
}

pub(super) fn read(from: &mut impl Read) -> anyhow::Result<Frame> {
    let mut length = [0; 4];
    from.read_exact(&mut length).context("the other daemon is not heard any more")?;
    let length = u32::from_le_bytes(length);
    if length > FRAME_MAX {
        bail!("a frame of {length} bytes has come");
    }
    let mut message = vec![0; length as usize];
    from.read_exact(&mut message)?;
    Ok(postcard::from_bytes(&message)?)
}

pub(super) fn write_chunk(
    to: &mut impl Write,
    chunk: u32,
    bytes: &[u8],
    checksum: Checksum,
) -> anyhow::Result<()> {
    let length = u32::try_from(bytes.len())?;
    write(to, &Frame::Chunk { chunk, bytes: length, checksum: checksum.0 })?;
    to.write_all(bytes)?;
    Ok(to.flush()?)
}

/// Gives the chunks that follow to `take`, until the end.
pub(super) fn read_chunks(
    from: &mut impl Read,
    mut take: impl FnMut(u32, &[u8], Checksum) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut buffer = Vec::new();
    loop {
        match read(from)? {
            Frame::Chunk { chunk, bytes, checksum } if u64::from(bytes) <= CHUNK_BYTES => {
                buffer.resize(bytes as usize, 0);
                from.read_exact(&mut buffer)?;
                take(chunk, &buffer, Checksum(checksum))?;
            }
            Frame::End => return Ok(()),
            Frame::No(reason) => bail!(reason),
            other => return Err(unexpected(&other)),
        }
    }
}

pub(super) fn unexpected(frame: &Frame) -> anyhow::Error {
    let kind = match frame {
        Frame::Keep(_) => "Keep",
        Frame::Go => "Go",
        Frame::Have => "Have",
        Frame::No(reason) => return anyhow::Error::msg(reason.clone()),
        Frame::Chunk { .. } => "Chunk",
        Frame::End => "End",
        Frame::Fetch { .. } => "Fetch",
        Frame::Manifest { .. } => "Manifest",
        Frame::Want(_) => "Want",
        Frame::Forget(..) => "Forget",
    };
    anyhow::anyhow!("the other daemon has answered `{kind}`, which does not fit")
}
