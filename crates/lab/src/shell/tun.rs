//! TUN devices, through which packets leave and enter a host.

use super::sys;
use rustix::fs::{Mode, OFlags, open};
use std::{env, io, os::fd::OwnedFd};

/// The environment variable that names another device node, for tests of the rootless lab.
const DEVICE_VARIABLE: &str = "THALWEG_TUN";

/// The most packets that the kernel queues for the emulator between two of its turns.
///
/// 2,000 packets of 1500 bytes are 24 ms at 1 Gbit/s, ten times the emulator's longest pause.
pub const QUEUE_PACKETS: u32 = 2_000;

fn device() -> String {
    env::var(DEVICE_VARIABLE).unwrap_or_else(|_| "/dev/net/tun".into())
}

/// Opens the device node, from which [`create`] makes a device.
///
/// # Errors
/// If the node is absent or not accessible to this user; the message says what to do.
pub fn open_device() -> anyhow::Result<OwnedFd> {
    let path = device();
    open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).map_err(|e| {
        let hint = match io::Error::from(e).kind() {
            io::ErrorKind::PermissionDenied => {
                "hint: this user may not open it. Either run as root, or allow access once with \
                 `sudo chmod 0666 /dev/net/tun` (the default of most distributions; it gives no \
                 rights outside of the user's own namespaces)"
            }
            io::ErrorKind::NotFound => {
                "hint: load the module with `sudo modprobe tun`; in a container, pass the device \
                 (`--device /dev/net/tun`)"
            }
            _ => "hint: check that the kernel module `tun` works on this machine",
        };
        anyhow::anyhow!("cannot open {path}: {}\n{hint}", io::Error::from(e))
    })
}

/// Creates the device `name` in this thread's network namespace.
///
/// # Errors
/// If the name is taken or the namespace is not ours.
pub fn create(name: &str) -> anyhow::Result<OwnedFd> {
    let device = open_device()?;
    sys::name_tun(&device, name)
        .map_err(|e| anyhow::anyhow!("cannot create the network device {name}: {e}"))?;
    Ok(device)
}
