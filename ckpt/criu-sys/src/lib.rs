//! CRIU's RPC: its messages, generated from its protocol definition, and the `swrk` transport.
//!
//! Nothing here knows what is dumped or why; that is `coswitch-ckpt`. Each request has its own worker process
//! ([`Swrk`]), so any number may run at a time. One thread forks all of them ([`forker`]).

pub mod forker;
pub mod image;
pub mod rpc;

mod limits;
mod swrk;

pub use swrk::{Ended, Notification, Swrk, SwrkError};
