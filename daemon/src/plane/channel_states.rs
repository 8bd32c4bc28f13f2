//! Channel states in a snapshot: the messages that were on their way at the cut. They are checked when they
//! are read, so that a damaged snapshot ends its own job alone.

use std::collections::VecDeque;

use coswitch_policies::NodeId;
use coswitch_ring::{HEADER_BYTES, Header, MESSAGE_MAX};
use serde::{Deserialize, Serialize};
use thiserror::Error;

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ChannelStatesError {
    #[error("they do not decode: {0}")]
    Decode(#[from] postcard::Error),
    #[error("the header of a record has {0} bytes, not {HEADER_BYTES}")]
    Header(usize),
    #[error("a record has {found} bytes, its header says {announced}, and a chunk holds {chunk_bytes}")]
    Record { found: usize, announced: u32, chunk_bytes: usize },
    #[error("a message to the launcher has {0} bytes, and none has more than {MESSAGE_MAX}")]
    Message(usize),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChannelStates {
    /// Peer, header and payload of each message. Messages of one peer for one rank are in their order.
    pub(crate) inbox: Vec<(NodeId, Header, Vec<u8>)>,
    pub(crate) to_launcher: VecDeque<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct Encoded {
    inbox: Vec<(NodeId, Vec<u8>, Vec<u8>)>,
    to_launcher: VecDeque<Vec<u8>>,
}

/// The channel states of an application whose ranks are all on one node.
pub(crate) fn no_channel_states() -> Vec<u8> {
    ChannelStates::default().encode()
}

impl ChannelStates {
    pub(crate) fn encode(self) -> Vec<u8> {
        let encoded =
            |(peer, header, payload): (NodeId, Header, _)| (peer, header.as_bytes().to_vec(), payload);
        let inbox = self.inbox.into_iter().map(encoded).collect();
        let encoded = Encoded { inbox, to_launcher: self.to_launcher };
        postcard::to_stdvec(&encoded).expect("plain data encodes")
    }

    /// For a segment whose chunks have `chunk_bytes`.
    pub(crate) fn decode(bytes: &[u8], chunk_bytes: usize) -> Result<Self, ChannelStatesError> {
        let Encoded { inbox, to_launcher } = postcard::from_bytes(bytes)?;
        if let Some(message) = to_launcher.iter().find(|message| message.len() > MESSAGE_MAX) {
            return Err(ChannelStatesError::Message(message.len()));
        }
        let record = |(peer, header, payload): (NodeId, Vec<u8>, Vec<u8>)| {
            let bytes = <&[u8; HEADER_BYTES]>::try_from(header.as_slice());
            let header = Header::from_bytes(bytes.map_err(|_| ChannelStatesError::Header(header.len()))?);
            let (found, announced) = (payload.len(), header.len);
            if found != announced as usize || found > chunk_bytes {
                return Err(ChannelStatesError::Record { found, announced, chunk_bytes });
            }
            Ok((peer, header, payload))
        };
        Ok(Self { inbox: inbox.into_iter().map(record).collect::<Result<_, _>>()?, to_launcher })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = 1000;

    fn states(announced: u32, found: usize, message: usize) -> Vec<u8> {
        let header = Header { len: announced, src: 3, ..Header::EMPTY };
        let inbox = vec![(NodeId(1), header, vec![7; found])];
        ChannelStates { inbox, to_launcher: [vec![1; message]].into() }.encode()
    }

    #[test]
    fn what_was_saved_is_read_back() {
        let read = ChannelStates::decode(&states(1000, 1000, MESSAGE_MAX), CHUNK).unwrap();
        assert_eq!((read.inbox[0].1.src, read.inbox[0].2.len()), (3, 1000));
        assert_eq!(ChannelStates::decode(&no_channel_states(), CHUNK), Ok(ChannelStates::default()));
    }

    #[test]
    fn what_would_lead_out_of_a_buffer_is_refused() {
        for (announced, found) in [(u32::MAX, 10), (9, 10), (10, 9), (1001, 1001)] {
            let error = ChannelStates::decode(&states(announced, found, 1), CHUNK).unwrap_err();
            assert_eq!(error, ChannelStatesError::Record { found, announced, chunk_bytes: CHUNK });
        }
        let long = ChannelStates::decode(&states(0, 0, MESSAGE_MAX + 1), CHUNK);
        assert_eq!(long, Err(ChannelStatesError::Message(MESSAGE_MAX + 1)));
        let short =
            Encoded { inbox: vec![(NodeId(0), vec![0; 63], Vec::new())], to_launcher: VecDeque::new() };
        let short = postcard::to_stdvec(&short).unwrap();
        assert_eq!(ChannelStates::decode(&short, CHUNK), Err(ChannelStatesError::Header(63)));
        assert!(matches!(ChannelStates::decode(&[0xff; 40], CHUNK), Err(ChannelStatesError::Decode(_))));
    }
}
