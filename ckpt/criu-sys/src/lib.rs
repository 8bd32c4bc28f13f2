//! CRIU's RPC: its messages, generated from its protocol definition, and the `swrk` transport.
//!
//! Nothing here knows what is dumped or why; that is `coswitch-ckpt`. One request has one worker process
//! ([`Swrk`]), so any number may run at a time. All forking is done by one thread ([`forker`]).

pub mod forker;
mod limits;
mod swrk;

pub use swrk::{Ended, Notification, Swrk, SwrkError};

/// Requests and responses.
#[allow(missing_docs, reason = "generated; the definitions are commented in proto/rpc.proto")]
pub mod rpc {
    include!(concat!(env!("OUT_DIR"), "/criu.rpc.rs"));
}

/// Entries of image files; only those of page maps are complete, all others are for reading.
#[allow(missing_docs, reason = "generated; the definitions are commented in proto/image.proto")]
pub mod image {
    include!(concat!(env!("OUT_DIR"), "/criu.image.rs"));
}
