//! The master scheduler and the command line.
//!
//! [`config`] reads a job set, [`doctor`] checks the machine, [`engine`] runs the set and tells what happens as
//! [`journal`] events; the live view and the report are made from those events and from nothing else.

pub mod config;
pub mod engine;
pub mod journal;
