//! The master scheduler and the command line.
//!
//! [`config`] reads a job set, [`doctor`] checks the machine, [`engine`] runs the set and tells what happens as
//! [`journal`] events; the [`live`] view and the [`report`] are made from those events and from nothing else.

pub mod cli;
pub mod compare;
pub mod config;
mod costs;
pub mod doctor;
pub mod engine;
pub mod install;
pub mod journal;
pub mod live;
pub mod report;
pub mod run_name;
