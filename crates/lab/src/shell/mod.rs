//! The I/O around the pure emulation: namespaces, devices, clock, sockets.

pub mod dns;
pub mod engine;
pub mod exec;
pub mod host;
pub mod lateness;
pub mod names;
pub mod netlink;
pub mod packet;
pub mod pcap;
pub mod server;
pub mod supervise;
pub mod sys;
pub mod taps;
pub mod tun;
