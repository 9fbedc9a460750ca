//! Why there is no device.

use std::io;
use thiserror::Error;

/// Why there is no device, and what to do.
#[derive(Debug, Error)]
pub enum TunError {
    /// The device node.
    #[error("cannot open /dev/net/tun: {source}{}", hint(source))]
    Open {
        /// The kernel's word.
        source: io::Error,
    },
    /// This process may not.
    #[error(
        "this process may not make the network device `{0}`: it needs CAP_NET_ADMIN, and nothing else of \
         root's (in a systemd unit `AmbientCapabilities=CAP_NET_ADMIN`; else `setcap cap_net_admin+ep` on \
         the program)"
    )]
    Rights(String),
    /// Somebody else's.
    #[error("another program uses the network device `{0}`; take another name")]
    Busy(String),
    /// No name of a device.
    #[error("`{0}` is no name of a network device: 1 to 15 letters, digits, `-`, `_` and `.`")]
    Name(String),
    /// The kernel does not have it, or does not let this process use it.
    #[error(
        "the network device `{device}` cannot have the congestion control `{congestion}` (`congestion` in the settings): \
         {source}; `sysctl net.ipv4.tcp_available_congestion_control` lists what this kernel has"
    )]
    Congestion {
        /// The device's name.
        device: String,
        /// The congestion control's.
        congestion: String,
        /// The kernel's word.
        source: io::Error,
    },
    /// It was made, and could not be used.
    #[error("cannot use the network device `{device}`: {step} failed: {source}")]
    SetUp {
        /// Its name.
        device: String,
        /// What was tried.
        step: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "; `modprobe tun`, or pass the device into the container (`--device /dev/net/tun`)"
        }
        io::ErrorKind::PermissionDenied => {
            "; it is closed to this user: `chmod 0666 /dev/net/tun` opens it, as most distributions have it"
        }
        _ => "",
    }
}
