//! The node daemon: the software network card of a node.
