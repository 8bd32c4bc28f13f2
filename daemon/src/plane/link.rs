//! One data link: a non-blocking TCP stream to a peer daemon, shared by all applications.
//!
//! Sending: a frame is written straight from where it lies (ring or slab); only what the socket does not take is copied
//! and kept. While something is kept the link has no room, and the rings fill up behind it: that is the back-pressure.
//! Receiving: small records are read many at a time; the payload of a large one goes from the socket straight into
//! the slab chunk in which the rank will find it.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
};

use coswitch_policies::{JobId, NodeId};
use coswitch_ring::{HEADER_BYTES, Header, INLINE_MAX};

use super::{
    apps::Apps,
    frame::{self, DATA_HEAD_BYTES, Frame, FrameHead, HEAD_BYTES},
    incoming::Incoming,
    moved::Moved,
};

const READ_BYTES: usize = 64 << 10;
/// More is never kept for one link: one record and a few control frames.
const KEPT_COMPACT: usize = 1 << 20;

/// See the module's description.
pub(crate) struct Link {
    pub(crate) peer: NodeId,
    stream: TcpStream,
    kept: Vec<u8>,
    kept_from: usize,
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
    large: Option<Large>,
    /// The last record was large: more of them follow, so do not read their payloads into `buffer`.
    streaming: bool,
}

/// A large record of which the payload is still coming.
struct Large {
    job: JobId,
    header: Header,
    target: Incoming,
    have: usize,
}

impl Link {
    pub(crate) fn new(peer: NodeId, stream: TcpStream) -> Self {
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Self {
            peer,
            stream,
            kept: Vec::new(),
            kept_from: 0,
            buffer,
            begin: 0,
            end: 0,
            large: None,
            streaming: false,
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether a record may be sent; control frames always may.
    pub(crate) fn has_room(&self) -> bool {
        self.kept.is_empty()
    }

    /// Sends a record.
    pub(crate) fn send_record(&mut self, job: JobId, header: &Header, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).expect("a record's payload fits one chunk");
        let head = FrameHead { job, frame: Frame::Data { payload: length } }.encode();
        self.send([&head, header.as_bytes(), payload])
    }

    /// Sends a marker or credit.
    pub(crate) fn send_control(&mut self, job: JobId, frame: Frame) -> io::Result<()> {
        self.send([&FrameHead { job, frame }.encode(), &[], &[]])
    }

    fn send(&mut self, parts: [&[u8]; 3]) -> io::Result<()> {
        let mut sent = 0;
        if self.kept.is_empty() {
            sent = again(self.stream.write_vectored(&parts.map(IoSlice::new)))?.unwrap_or(0);
        }
        for part in parts {
            let skip = sent.min(part.len());
            self.kept.extend_from_slice(&part[skip..]);
            sent -= skip;
        }
        Ok(())
    }

    /// Writes what was kept, as far as the socket takes it; true where some of it went out.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        if self.kept.is_empty() {
            return Ok(false);
        }
        let Some(sent) = again(self.stream.write(&self.kept[self.kept_from..]))? else { return Ok(false) };
        self.kept_from += sent;
        if self.kept_from == self.kept.len() {
            self.kept.clear();
            self.kept_from = 0;
            self.kept.shrink_to(KEPT_COMPACT);
        }
        Ok(sent > 0)
    }

    /// Reads once and hands complete records and control frames to `apps`.
    pub(crate) fn receive(&mut self, apps: &mut Apps) -> io::Result<Moved> {
        let room = if self.streaming { DATA_HEAD_BYTES } else { READ_BYTES };
        self.make_room();
        let limit = (self.end + room).min(self.buffer.len());
        let rest = &mut self.buffer[self.end..limit];
        let read = match &mut self.large {
            Some(large) => {
                let length = large.header.len as usize;
                let into = &mut large.target.bytes_mut()[large.have..length];
                again(self.stream.read_vectored(&mut [IoSliceMut::new(into), IoSliceMut::new(rest)]))?
            }
            None => again(self.stream.read(rest))?,
        };
        let Some(mut read) = read else { return Ok(Moved::Nothing) };
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Some(large) = &mut self.large {
            let direct = read.min(large.header.len as usize - large.have);
            large.have += direct;
            read -= direct;
        }
        self.end += read;
        let was_large = self.large.is_some();
        self.finish_large(apps);
        let moved = if was_large && self.large.is_none() { Moved::Chunk } else { Moved::Something };
        while self.large.is_none() && self.take_frame(apps)? {}
        Ok(moved)
    }

    fn make_room(&mut self) {
        if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
    }

    fn finish_large(&mut self, apps: &mut Apps) {
        if let Some(large) = self.large.take_if(|large| large.have == large.header.len as usize) {
            apps.on_record(self.peer, large.job, large.header, large.target);
        }
    }

    /// Takes one frame out of the buffer; false where it is not yet complete.
    fn take_frame(&mut self, apps: &mut Apps) -> io::Result<bool> {
        let have = &self.buffer[self.begin..self.end];
        let Some((head, rest)) = have.split_first_chunk::<HEAD_BYTES>() else { return Ok(false) };
        let FrameHead { job, frame } = FrameHead::decode(head).map_err(invalid)?;
        let announced = match frame {
            Frame::Data { payload } => payload,
            Frame::Marker { epoch } => {
                self.begin += HEAD_BYTES;
                apps.on_marker(self.peer, job, epoch);
                return Ok(true);
            }
            Frame::Credit { bytes } => {
                self.begin += HEAD_BYTES;
                apps.on_credit(self.peer, job, bytes);
                return Ok(true);
            }
        };
        let Some((header, payload)) = rest.split_first_chunk::<HEADER_BYTES>() else { return Ok(false) };
        let header = Header::from_bytes(header);
        frame::check_record(announced, &header).map_err(invalid)?;
        let length = announced as usize;
        self.streaming = length > INLINE_MAX;
        if !self.streaming {
            let Some(payload) = payload.get(..length) else { return Ok(false) };
            apps.on_small_record(self.peer, job, header, payload);
            self.begin += DATA_HEAD_BYTES + length;
            return Ok(true);
        }
        let mut target = apps.place(self.peer, job, &header);
        let have = payload.len().min(length);
        target.bytes_mut()[..have].copy_from_slice(&payload[..have]);
        self.begin += DATA_HEAD_BYTES + have;
        self.large = Some(Large { job, header, target, have });
        self.finish_large(apps);
        Ok(true)
    }
}

/// `None` where the socket would have blocked or a signal came.
fn again(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        other => other.map(Some),
    }
}

fn invalid(error: frame::FrameError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
