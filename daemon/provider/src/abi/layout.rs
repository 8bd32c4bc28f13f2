//! Test of the layout of every structure, against sizes and offsets that a C compiler measured from the
//! public headers of libfabric 1.17 (x86-64; equal on every LP64 platform).

use super::*;
use std::mem::{offset_of, size_of};

macro_rules! layout {
    ($($name:ident $size:literal { $($field:ident $offset:literal),* })*) => {$(
        assert_eq!(size_of::<$name>(), $size, concat!("size of ", stringify!($name)));
        $(assert_eq!(
            offset_of!($name, $field), $offset,
            concat!("offset of ", stringify!($name), ".", stringify!($field))
        );)*
    )*};
}

#[test]
fn structures_have_the_layout_of_the_c_headers() {
    layout! {
        Fid 24 { fclass 0, context 8, ops 16 }
        Ops 56 { size 0, close 8, bind 16, control 24, ops_open 32, tostr 40, ops_set 48 }
        Info 120 {
            next 0, caps 8, mode 16, addr_format 24, src_addrlen 32, dest_addrlen 40, src_addr 48,
            dest_addr 56, handle 64, tx_attr 72, rx_attr 80, ep_attr 88, domain_attr 96,
            fabric_attr 104, nic 112
        }
        TxAttr 80 {
            caps 0, mode 8, op_flags 16, msg_order 24, comp_order 32, inject_size 40, size 48,
            iov_limit 56, rma_iov_limit 64, tclass 72
        }
        RxAttr 64 {
            caps 0, mode 8, op_flags 16, msg_order 24, comp_order 32, total_buffered_recv 40,
            size 48, iov_limit 56
        }
        EpAttr 96 {
            ep_type 0, protocol 4, protocol_version 8, max_msg_size 16, msg_prefix_size 24,
            max_order_raw_size 32, max_order_war_size 40, max_order_waw_size 48, mem_tag_format 56,
            tx_ctx_cnt 64, rx_ctx_cnt 72, auth_key_size 80, auth_key 88
        }
        DomainAttr 192 {
            domain 0, name 8, threading 16, control_progress 20, data_progress 24,
            resource_mgmt 28, av_type 32, mr_mode 36, mr_key_size 40, cq_data_size 48, cq_cnt 56,
            ep_cnt 64, tx_ctx_cnt 72, rx_ctx_cnt 80, max_ep_tx_ctx 88, max_ep_rx_ctx 96,
            max_ep_stx_ctx 104, max_ep_srx_ctx 112, cntr_cnt 120, mr_iov_limit 128, caps 136,
            mode 144, auth_key 152, auth_key_size 160, max_err_data 168, mr_cnt 176, tclass 184
        }
        FabricAttr 32 { fabric 0, name 8, prov_name 16, prov_version 24, api_version 28 }
        Provider 72 { version 0, fi_version 4, context 8, name 40, getinfo 48, fabric 56, cleanup 64 }
        FidFabric 40 { fid 0, ops 24, api_version 32 }
        OpsFabric 56 {
            size 0, domain 8, passive_ep 16, eq_open 24, wait_open 32, trywait 40, domain2 48
        }
        FidDomain 40 { fid 0, ops 24, mr 32 }
        OpsDomain 96 {
            size 0, av_open 8, cq_open 16, endpoint 24, scalable_ep 32, cntr_open 40, poll_open 48,
            stx_ctx 56, srx_ctx 64, query_atomic 72, query_collective 80, endpoint2 88
        }
        OpsMr 32 { size 0, reg 8, regv 16, regattr 24 }
        FidMr 40 { fid 0, mem_desc 24, key 32 }
        MrAttr 80 {
            mr_iov 0, iov_count 8, access 16, offset 24, requested_key 32, context 40,
            auth_key_size 48, auth_key 56, iface 64, device 72
        }
        FidAv 32 { fid 0, ops 24 }
        OpsAv 64 {
            size 0, insert 8, insertsvc 16, insertsym 24, remove 32, lookup 40, straddr 48,
            av_set 56
        }
        AvAttr 48 { av_type 0, rx_ctx_bits 4, count 8, ep_per_node 16, name 24, map_addr 32, flags 40 }
        FidCq 32 { fid 0, ops 24 }
        OpsCq 64 {
            size 0, read 8, readfrom 16, readerr 24, sread 32, sreadfrom 40, signal 48,
            strerror 56
        }
        CqAttr 40 {
            size 0, flags 8, format 16, wait_obj 20, signaling_vector 24, wait_cond 28,
            wait_set 32
        }
        CqTaggedEntry 48 { op_context 0, flags 8, len 16, buf 24, data 32, tag 40 }
        CqErrEntry 64 {
            op_context 0, flags 8, len 16, buf 24, data 32, tag 40, olen 48, err 56, prov_errno 60
        }
        FidCntr 32 { fid 0, ops 24 }
        OpsCntr 64 { size 0, read 8, readerr 16, add 24, set 32, wait 40, adderr 48, seterr 56 }
        CntrAttr 24 { events 0, wait_obj 4, wait_set 8, flags 16 }
        FidEp 80 { fid 0, ops 24, cm 32, msg 40, rma 48, tagged 56, atomic 64, collective 72 }
        OpsEp 64 {
            size 0, cancel 8, getopt 16, setopt 24, tx_ctx 32, rx_ctx 40, rx_size_left 48,
            tx_size_left 56
        }
        OpsCm 80 {
            size 0, setname 8, getname 16, getpeer 24, connect 32, listen 40, accept 48, reject 56,
            shutdown 64, join 72
        }
        OpsMsg 80 {
            size 0, recv 8, recvv 16, recvmsg 24, send 32, sendv 40, sendmsg 48, inject 56,
            senddata 64, injectdata 72
        }
        OpsTagged 80 {
            size 0, recv 8, recvv 16, recvmsg 24, send 32, sendv 40, sendmsg 48, inject 56,
            senddata 64, injectdata 72
        }
        OpsRma 80 {
            size 0, read 8, readv 16, readmsg 24, write 32, writev 40, writemsg 48, inject 56,
            writedata 64, injectdata 72
        }
        OpsAtomic 112 { size 0, all 8 }
        OpsCollective 96 { size 0, all 8 }
        Msg 48 { msg_iov 0, desc 8, iov_count 16, addr 24, context 32, data 40 }
        MsgTagged 64 { msg_iov 0, desc 8, iov_count 16, addr 24, tag 32, ignore 40, context 48, data 56 }
        RmaIov 24 { addr 0, len 8, key 16 }
        MsgRma 64 {
            msg_iov 0, desc 8, iov_count 16, addr 24, rma_iov 32, rma_iov_count 40, context 48,
            data 56
        }
    }
}
