//! One data link: a non-blocking TCP stream to a peer daemon, shared by all applications.
//!
//! Sending: a frame is written straight from its ring or slab; only the rest that the socket does not take is
//! copied. While there is an unsent rest, the link takes no further record, and the rings fill up: that is
//! the back-pressure. Receiving: small records are read many at a time; the payload of a large one goes from
//! the socket straight into the slab chunk in which the rank will find it.
//!
//! An encrypted link sends and receives the same bytes as records of [`super::seal`]: each frame is sealed as
//! it is sent, and a payload reaches its chunk by way of the opened record.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use coswitch_policies::{Epoch, NodeId};
use coswitch_ring::{HEADER_BYTES, Header, INLINE_MAX, SharedBytes};

use super::{
    connect::Connection,
    frame::{self, AppLife, DATA_HEAD_BYTES, Frame, FrameHead, HEAD_BYTES},
    incoming::{Incoming, Place},
    moved::Moved,
    outgoing::Part,
    seal::{Opener, Sealer},
};

const READ_BYTES: usize = 64 << 10;
/// Capacity that the buffer of unsent bytes may keep; one record and a few control frames fit.
const UNSENT_CAPACITY: usize = 1 << 20;

/// The receiver of a link's frames.
pub(crate) trait FrameHandler {
    /// Chooses the place for the payload of a large record.
    fn place(&mut self, from: NodeId, app: AppLife, header: &Header) -> Incoming;
    /// A large record is complete.
    fn on_record(&mut self, from: NodeId, app: AppLife, header: Header, payload: Incoming);
    /// A small record is complete, in the receive buffer.
    fn on_small_record(&mut self, from: NodeId, app: AppLife, header: Header, payload: &[u8]);
    fn on_credit(&mut self, from: NodeId, app: AppLife, bytes: u64);
    fn on_marker(&mut self, from: NodeId, app: AppLife, epoch: Epoch);
}

pub(crate) struct Link {
    pub(crate) peer: NodeId,
    /// Of the peer's daemon.
    pub(crate) incarnation: u64,
    silence: Duration,
    stream: TcpStream,
    /// Of an encrypted link.
    ends: Option<(Sealer, Opener)>,
    /// As they go to the socket, encrypted or not.
    unsent: Vec<u8>,
    unsent_from: usize,
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
    large: Option<Large>,
    /// The last record was large: more of them are likely, so their payloads are not read into `buffer`.
    streaming: bool,
}

/// A large record whose payload is incomplete.
struct Large {
    app: AppLife,
    header: Header,
    target: Incoming,
    have: usize,
}

impl Large {
    fn missing(&mut self) -> Place<'_> {
        self.target.place(self.have..self.header.len as usize)
    }

    /// Goes on in memory of the daemon: its place in the segment is gone.
    fn leave_segment(&mut self) {
        self.target = Incoming::Heap(self.target.first(self.header.len as usize));
    }
}

impl Link {
    pub(crate) fn new(connection: Connection) -> Self {
        let Connection { peer, incarnation, stream, keys, silence } = connection;
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Self {
            peer,
            incarnation,
            silence,
            stream,
            ends: keys.map(|keys| (Sealer::new(&keys.sending), Opener::new(&keys.receiving))),
            unsent: Vec::new(),
            unsent_from: 0,
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

    /// In words, why the link cannot go on.
    pub(crate) fn reason(&self, error: &io::Error) -> String {
        match error.kind() {
            ErrorKind::TimedOut => format!("it has not answered for {:?}", self.silence),
            ErrorKind::UnexpectedEof => "its daemon has closed it".to_owned(),
            _ => error.to_string(),
        }
    }

    /// Whether a record may be sent; control frames always may.
    pub(crate) fn may_send_record(&self) -> bool {
        self.unsent.is_empty()
    }

    pub(crate) fn send_record(
        &mut self,
        app: AppLife,
        header: &Header,
        payload: SharedBytes<'_>,
    ) -> io::Result<()> {
        let length = u32::try_from(payload.len()).expect("a record's payload fits one chunk");
        let head = FrameHead { app, frame: Frame::Data { payload: length } }.encode();
        self.send([&head, header.as_bytes()], Part::Shared(payload))
    }

    pub(crate) fn send_control(&mut self, app: AppLife, frame: Frame) -> io::Result<()> {
        self.send([&FrameHead { app, frame }.encode(), &[]], Part::Own(&[]))
    }

    fn send(&mut self, head: [&[u8]; 2], payload: Part<'_>) -> io::Result<()> {
        let parts = [Part::Own(head[0]), Part::Own(head[1]), payload];
        if let Some((sealer, _)) = &mut self.ends {
            sealer.seal(parts, &mut self.unsent);
            return self.flush().map(drop);
        }
        let mut sent = 0;
        if self.unsent.is_empty() {
            let written = match payload {
                Part::Own(payload) => {
                    self.stream.write_vectored(&[head[0], head[1], payload].map(IoSlice::new))
                }
                Part::Shared(payload) => payload.write_after(head, self.stream.as_fd()),
            };
            sent = again(written.or_else(|error| if is_fault(&error) { Ok(0) } else { Err(error) }))?
                .unwrap_or(0);
        }
        for part in parts {
            let skip = sent.min(part.len());
            part.skip(skip).append_first(part.len() - skip, &mut self.unsent);
            sent -= skip;
        }
        Ok(())
    }

    /// Writes unsent bytes, as many as the socket takes; true where it took some.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        if self.unsent.is_empty() {
            return Ok(false);
        }
        let Some(sent) = again(self.stream.write(&self.unsent[self.unsent_from..]))? else {
            return Ok(false);
        };
        self.unsent_from += sent;
        if self.unsent_from == self.unsent.len() {
            self.unsent.clear();
            self.unsent_from = 0;
            self.unsent.shrink_to(UNSENT_CAPACITY);
        }
        Ok(sent > 0)
    }

    /// Reads once and gives complete records and control frames to `handler`.
    pub(crate) fn receive(&mut self, handler: &mut impl FrameHandler) -> io::Result<Moved> {
        let at_most = if self.streaming { DATA_HEAD_BYTES } else { READ_BYTES };
        self.compact();
        let limit = (self.end + at_most).min(self.buffer.len());
        let rest = &mut self.buffer[self.end..limit];
        let into = self.large.as_mut().map_or(Place::Own(&mut []), Large::missing);
        let read = match (&mut self.ends, into) {
            (Some((_, opener)), into) => opener.read(&mut self.stream, [into, Place::Own(rest)]),
            (None, into) if into.len() == 0 => again(self.stream.read(rest)),
            (None, Place::Shared(into)) => again(into.read_before(rest, self.stream.as_fd())),
            (None, Place::Own(into)) => {
                again(self.stream.read_vectored(&mut [IoSliceMut::new(into), IoSliceMut::new(rest)]))
            }
        };
        let read = match read {
            Err(error) if is_fault(&error) => {
                self.large.as_mut().map(Large::leave_segment);
                return Ok(Moved::Something);
            }
            read => read?,
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
        self.finish_large(handler);
        let moved = if was_large && self.large.is_none() { Moved::Chunk } else { Moved::Something };
        while self.large.is_none() && self.take_frame(handler)? {}
        Ok(moved)
    }

    /// The application's segment is about to be used for something else: the rest of a record that has begun
    /// does not go there.
    pub(crate) fn let_go_of(&mut self, app: AppLife) {
        if let Some(large) = self.large.as_mut().filter(|large| large.app == app) {
            large.target = Incoming::heap(large.header.len as usize);
        }
    }

    fn compact(&mut self) {
        if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
    }

    fn finish_large(&mut self, handler: &mut impl FrameHandler) {
        if let Some(large) = self.large.take_if(|large| large.have == large.header.len as usize) {
            handler.on_record(self.peer, large.app, large.header, large.target);
        }
    }

    /// Takes one frame out of the buffer; false where it is incomplete.
    fn take_frame(&mut self, handler: &mut impl FrameHandler) -> io::Result<bool> {
        let have = &self.buffer[self.begin..self.end];
        let Some((head, rest)) = have.split_first_chunk::<HEAD_BYTES>() else { return Ok(false) };
        let FrameHead { app, frame } = FrameHead::decode(head).map_err(invalid)?;
        let announced = match frame {
            Frame::Data { payload } => payload,
            Frame::Marker { epoch } => {
                self.begin += HEAD_BYTES;
                handler.on_marker(self.peer, app, epoch);
                return Ok(true);
            }
            Frame::Credit { bytes } => {
                self.begin += HEAD_BYTES;
                handler.on_credit(self.peer, app, bytes);
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
            handler.on_small_record(self.peer, app, header, payload);
            self.begin += DATA_HEAD_BYTES + length;
            return Ok(true);
        }
        let mut target = handler.place(self.peer, app, &header);
        let have = payload.len().min(length);
        target.place(0..have).fill(&payload[..have]);
        self.begin += DATA_HEAD_BYTES + have;
        self.large = Some(Large { app, header, target, have });
        self.finish_large(handler);
        Ok(true)
    }
}

/// `None` where the socket would have blocked or a signal came.
pub(super) fn again(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        other => other.map(Some),
    }
}

/// Whether the kernel has found a page of a segment missing. The copy that follows finds it as well, and
/// the job ends ([`coswitch_ring::survive_missing_pages`]); the link is that of all jobs.
fn is_fault(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFAULT)
}

fn invalid(error: frame::FrameError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
