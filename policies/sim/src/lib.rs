//! Discrete-event simulator that drives the same Scheduler as the master.
