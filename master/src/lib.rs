//! The master scheduler and the command line.
//!
//! [`config`] reads a job set, [`doctor`] checks the machine, and [`engine`] runs the set and emits its
//! events. The [`journal`] stores them; the [`live`] view and the reports of `coswitch-report` are made from
//! them alone. [`cli`] is above all others.

pub mod accounts;
pub mod api;
pub mod cli;
pub mod client;
pub mod compaction;
pub mod config;
mod costs;
mod daytime;
pub mod doctor;
pub mod engine;
mod image_key;
pub mod install;
pub mod interrupt;
pub mod journal;
pub mod live;
pub mod parked;
pub mod past;
mod replace;
pub mod run_name;
pub mod serve;
pub mod shutdown;
pub mod standing;
mod top;
mod watching;
