//! Errors of TUN devices.

use std::io;
use thiserror::Error;

/// Why a TUN device could not be set up, and what to do.
#[derive(Debug, Error)]
pub enum TunError {
    /// The device node cannot be opened.
    #[error("cannot open /dev/net/tun: {source}{}", hint(source))]
    Open { source: io::Error },
    /// The process lacks the permission.
    #[error(
        "this process may not create the network device `{0}`: it needs the capability \
         CAP_NET_ADMIN (in a systemd unit `AmbientCapabilities=CAP_NET_ADMIN`; otherwise `setcap \
         cap_net_admin+ep` on the program)"
    )]
    Rights(String),
    /// Another program uses the device.
    #[error("another program uses the network device `{0}`; choose another name")]
    Busy(String),
    /// The name is invalid.
    #[error(
        "`{0}` is not the name of a network device: use 1 to 15 letters, digits, `-`, `_` and `.`"
    )]
    Name(String),
    /// The kernel does not have the congestion control, or does not let this process use it.
    #[error(
        "the network device `{device}` cannot use the congestion control `{congestion}` \
         (`congestion` in the settings): {source}; `sysctl \
         net.ipv4.tcp_available_congestion_control` lists those of this kernel"
    )]
    Congestion {
        device: String,
        /// The name of the congestion control.
        congestion: String,
        source: io::Error,
    },
    /// The device was created but could not be set up.
    #[error("cannot use the network device `{device}`: {step} failed: {source}")]
    SetUp {
        device: String,
        /// The step that failed.
        step: &'static str,
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "; `modprobe tun`, or pass the device into the container (`--device /dev/net/tun`)"
        }
        io::ErrorKind::PermissionDenied => {
            "; this user has no access: `chmod 0666 /dev/net/tun` grants it, as most distributions \
             do"
        }
        _ => "",
    }
}
