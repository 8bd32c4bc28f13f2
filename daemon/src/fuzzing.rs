//! Entry points for the fuzz targets in `tests/fuzz`: the parsers of what other nodes, the head node and
//! ranks send.

use coswitch_launcher::protocol::{Assembler, LauncherEvent};
use coswitch_ring::{CHUNK_MAX, Header};

use crate::{
    copies,
    plane::{ChannelStates, Frame, FrameHead, check_record},
    protocol::{DaemonEvent, Request},
    wire,
};

/// A frame of a data link, and the record's header that follows.
pub fn data_frame(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk() else { return };
    let Ok(FrameHead { frame: Frame::Data { payload }, .. }) = FrameHead::decode(head) else { return };
    if let Some((header, _)) = rest.split_first_chunk()
        && check_record(payload, &Header::from_bytes(header)).is_ok()
    {
        assert!(payload as usize <= CHUNK_MAX);
    }
}

/// What a node has kept of its channels.
pub fn channel_states(bytes: &[u8]) {
    if let Ok(states) = ChannelStates::decode(bytes, CHUNK_MAX) {
        assert!(ChannelStates::decode(&states.encode(), CHUNK_MAX).is_ok());
    }
}

/// Frames of the control protocol, in both directions.
pub fn control_frames(bytes: &[u8]) {
    let _ = wire::read_blocking::<Request>(&mut &bytes[..]);
    let mut left = bytes;
    while let Ok(Some(_)) = wire::read_blocking::<DaemonEvent>(&mut left) {}
}

/// Frames of a connection for copies.
pub fn copy_frames(bytes: &[u8]) {
    copies::read_frames(bytes);
}

/// What a launcher says, in parts of the lengths that begin them.
pub fn launcher_messages(bytes: &[u8]) {
    let mut said = Assembler::<LauncherEvent>::default();
    let mut left = bytes;
    while let Some((&length, rest)) = left.split_first() {
        let (message, behind) = rest.split_at(rest.len().min(length.into()));
        if said.push(message).is_err() {
            return;
        }
        left = behind;
    }
}
