//! Entries of image files, generated from `proto/image.proto`. Only the entries of page maps are complete;
//! all others are for reading.

include!(concat!(env!("OUT_DIR"), "/criu.image.rs"));
