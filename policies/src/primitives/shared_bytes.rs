//! The bytes of a block: clones share them, because one transfer makes a message for each node.

use std::{fmt, ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};

#[derive(Clone, PartialEq, Eq)]
pub struct SharedBytes(Arc<[u8]>);

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A block may have a megabyte.
impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// As one piece: as a sequence of numbers each byte would be a call.
impl Serialize for SharedBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for SharedBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;

        impl Visitor<'_> for BytesVisitor {
            type Value = SharedBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<SharedBytes, E> {
                Ok(SharedBytes(bytes.into()))
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<SharedBytes, E> {
                Ok(bytes.into())
            }
        }

        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}
