//! Constants of the interface: flags, classes, commands, errors.

pub(crate) const fn fi_version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

// Capabilities and operation flags share one 64-bit number.
pub(crate) const FI_MSG: u64 = 1 << 1;
pub(crate) const FI_RMA: u64 = 1 << 2;
pub(crate) const FI_TAGGED: u64 = 1 << 3;
pub(crate) const FI_READ: u64 = 1 << 8;
pub(crate) const FI_WRITE: u64 = 1 << 9;
pub(crate) const FI_RECV: u64 = 1 << 10;
pub(crate) const FI_SEND: u64 = 1 << 11;
pub(crate) const FI_REMOTE_READ: u64 = 1 << 12;
pub(crate) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const FI_MULTI_RECV: u64 = 1 << 16;
pub(crate) const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub(crate) const FI_PEEK: u64 = 1 << 19;
pub(crate) const FI_COMPLETION: u64 = 1 << 24;
pub(crate) const FI_INJECT: u64 = 1 << 25;
pub(crate) const FI_LOCAL_COMM: u64 = 1 << 51;
pub(crate) const FI_REMOTE_COMM: u64 = 1 << 52;
pub(crate) const FI_SOURCE: u64 = 1 << 57;
pub(crate) const FI_DIRECTED_RECV: u64 = 1 << 59;
pub(crate) const FI_CLAIM: u64 = 1 << 59;
pub(crate) const FI_DISCARD: u64 = 1 << 58;
pub(crate) const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;

pub(crate) const FI_ADDR_UNSPEC: u64 = u64::MAX;
pub(crate) const FI_ADDR_NOTAVAIL: u64 = u64::MAX;
pub(crate) const FI_FORMAT_UNSPEC: u32 = 0;
pub(crate) const FI_ORDER_SAS: u64 = 1 << 8;

pub(crate) const FI_EP_UNSPEC: i32 = 0;
pub(crate) const FI_EP_RDM: i32 = 3;
pub(crate) const FI_AV_UNSPEC: i32 = 0;
pub(crate) const FI_AV_TABLE: i32 = 2;
pub(crate) const FI_THREAD_UNSPEC: i32 = 0;
pub(crate) const FI_THREAD_SAFE: i32 = 1;
pub(crate) const FI_PROGRESS_UNSPEC: i32 = 0;
pub(crate) const FI_PROGRESS_AUTO: i32 = 1;
pub(crate) const FI_PROGRESS_MANUAL: i32 = 2;
pub(crate) const FI_RM_ENABLED: i32 = 2;

pub(crate) const FI_CQ_FORMAT_UNSPEC: i32 = 0;
pub(crate) const FI_CQ_FORMAT_CONTEXT: i32 = 1;
pub(crate) const FI_CQ_FORMAT_MSG: i32 = 2;
pub(crate) const FI_CQ_FORMAT_DATA: i32 = 3;
pub(crate) const FI_CQ_FORMAT_TAGGED: i32 = 4;

pub(crate) const FI_WAIT_NONE: i32 = 0;
pub(crate) const FI_WAIT_UNSPEC: i32 = 1;
pub(crate) const FI_WAIT_YIELD: i32 = 5;

pub(crate) const FI_CLASS_FABRIC: usize = 1;
pub(crate) const FI_CLASS_DOMAIN: usize = 2;
pub(crate) const FI_CLASS_EP: usize = 3;
pub(crate) const FI_CLASS_AV: usize = 11;
pub(crate) const FI_CLASS_MR: usize = 12;
pub(crate) const FI_CLASS_CQ: usize = 14;
pub(crate) const FI_CLASS_CNTR: usize = 15;

pub(crate) const FI_ENABLE: i32 = 6;
pub(crate) const FI_OPT_ENDPOINT: i32 = 0;
pub(crate) const FI_OPT_MIN_MULTI_RECV: i32 = 0;

pub(crate) const FI_ENOENT: i32 = libc::ENOENT;
pub(crate) const FI_EAGAIN: i32 = libc::EAGAIN;
pub(crate) const FI_EINVAL: i32 = libc::EINVAL;
pub(crate) const FI_EACCES: i32 = libc::EACCES;
pub(crate) const FI_ENOSYS: i32 = libc::ENOSYS;
pub(crate) const FI_ENOMSG: i32 = libc::ENOMSG;
pub(crate) const FI_ENODATA: i32 = libc::ENODATA;
pub(crate) const FI_EMSGSIZE: i32 = libc::EMSGSIZE;
pub(crate) const FI_ENOPROTOOPT: i32 = libc::ENOPROTOOPT;
pub(crate) const FI_EADDRNOTAVAIL: i32 = libc::EADDRNOTAVAIL;
pub(crate) const FI_EHOSTUNREACH: i32 = libc::EHOSTUNREACH;
pub(crate) const FI_ECANCELED: i32 = libc::ECANCELED;
pub(crate) const FI_ETOOSMALL: i32 = 257;
pub(crate) const FI_EAVAIL: i32 = 259;
pub(crate) const FI_ENOCQ: i32 = 263;
pub(crate) const FI_ETRUNC: i32 = 265;
pub(crate) const FI_ENOKEY: i32 = 266;
