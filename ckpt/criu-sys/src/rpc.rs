//! Requests and responses, generated from `proto/rpc.proto`.

include!(concat!(env!("OUT_DIR"), "/criu.rpc.rs"));
