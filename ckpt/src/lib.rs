//! Dump and restore of an application's part on a node through CRIU; snapshot manifest and store.
