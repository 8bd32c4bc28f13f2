//! The node daemon: the software network card of a node.
//!
//! It owns every network connection, relays messages between the ranks' rings and other nodes ([`plane`]),
//! runs the marker protocol ([`cut`]), launches ranks, owns their cgroups and calls the checkpointer
//! ([`app`]). The dispatchers on the head node give the orders ([`protocol`], [`session`]).

pub mod answers;
pub mod app;
pub mod cgroup;
pub mod children;
mod connections;
mod control;
mod copies;
pub mod cut;
pub mod following;
#[doc(hidden)]
pub mod fuzzing;
pub mod guard;
pub mod handover;
mod hold;
pub mod home;
pub mod kernel;
mod links;
mod listeners;
mod memory_news;
mod mounts;
pub mod multicast;
pub mod node;
pub mod node_clock;
mod outbox;
mod pass_on;
pub mod pki;
pub mod plane;
pub mod proc_text;
pub mod process;
pub mod processors;
pub mod protocol;
mod running;
pub mod scheduling;
pub mod serve;
pub mod session;
pub mod slices;
mod starter;
pub mod survival;
pub mod swap;
pub mod tag;
pub mod virtual_net;
pub mod wire;

pub use coswitch_launcher::panics;

pub use coswitch_ckpt::private;
