use super::*;

mod faults;
mod plain;
