//! Frames of the control protocol: magic, length, postcard body. Limits are checked before a body is read.

use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const MAGIC: u32 = u32::from_le_bytes(*b"CSWC");
/// Large enough for the PMI exchange of ten thousand ranks; no valid frame is larger.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Error)]
pub enum WireError {
    /// The connection broke, or ended in the middle of a frame.
    #[error("control connection broke")]
    Io(#[from] io::Error),
    #[error("peer does not speak the coswitch control protocol")]
    Magic,
    #[error("control frame of {0} bytes is over the limit of {FRAME_BYTES_MAX}")]
    TooLarge(usize),
    #[error("control frame does not decode")]
    Body(#[from] postcard::Error),
}

/// Writes one frame and flushes it.
pub async fn write<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), message: &T) -> Result<(), WireError> {
    to.write_all(&frame_of(message)?).await?;
    Ok(to.flush().await?)
}

/// The same on a thread that may wait.
pub(crate) fn write_blocking<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), WireError> {
    to.write_all(&frame_of(message)?)?;
    Ok(to.flush()?)
}

fn frame_of<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    let mut frame = [MAGIC.to_le_bytes(), [0; 4]].concat();
    frame = postcard::to_extend(message, frame)?;
    let length = frame.len() - 8;
    if length > FRAME_BYTES_MAX {
        return Err(WireError::TooLarge(length));
    }
    frame[4..8].copy_from_slice(&u32::try_from(length).expect("under the limit").to_le_bytes());
    Ok(frame)
}

/// Reads one frame; `None` where the peer has closed the connection between two frames.
pub async fn read<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<T>, WireError> {
    let mut head = [0; 8];
    match from.read_exact(&mut head).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let mut body = vec![0; length_of(head)?];
    from.read_exact(&mut body).await?;
    Ok(Some(postcard::from_bytes(&body)?))
}

/// The same on a thread that may wait.
pub(crate) fn read_blocking<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>, WireError> {
    Ok(read_measured(from)?.map(|(message, _)| message))
}

/// The same, and how many bytes the message took.
pub(crate) fn read_measured<T: DeserializeOwned>(
    from: &mut impl Read,
) -> Result<Option<(T, usize)>, WireError> {
    let mut head = [0; 8];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let mut body = vec![0; length_of(head)?];
    from.read_exact(&mut body)?;
    Ok(Some((postcard::from_bytes(&body)?, body.len())))
}

fn length_of(head: [u8; 8]) -> Result<usize, WireError> {
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    if word(0) != MAGIC {
        return Err(WireError::Magic);
    }
    let length = word(4) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(WireError::TooLarge(length));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_comes_back_as_it_was_sent() {
        let mut bytes = Vec::new();
        write(&mut bytes, &(7u32, "seven".to_string())).await.unwrap();
        let mut input = bytes.as_slice();
        assert_eq!(read::<(u32, String)>(&mut input).await.unwrap(), Some((7, "seven".to_string())));
        assert_eq!(read::<(u32, String)>(&mut input).await.unwrap(), None);
        let mut again = Vec::new();
        write_blocking(&mut again, &(7u32, "seven".to_string())).unwrap();
        assert_eq!(again, bytes);
        let mut input = again.as_slice();
        assert_eq!(read_blocking(&mut input).unwrap(), Some((7u32, "seven".to_string())));
        assert_eq!(read_blocking::<(u32, String)>(&mut input).unwrap(), None);
    }

    #[tokio::test]
    async fn a_stranger_and_an_oversized_frame_are_refused_before_the_body_is_read() {
        let stranger = b"GET / HTTP/1.1\r\n";
        assert!(matches!(read::<u32>(&mut stranger.as_slice()).await, Err(WireError::Magic)));
        let huge = [MAGIC.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        assert!(matches!(read::<u32>(&mut huge.as_slice()).await, Err(WireError::TooLarge(_))));
    }
}
