//! CRIU's RPC: its messages, generated from its protocol definition, and the swrk transport.
