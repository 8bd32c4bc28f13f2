//! PID 1 of an application's PID namespace on a node: serves PMI to its ranks.
