//! Creates a TUN device through `/dev/net/tun`.
#![expect(unsafe_code, reason = "TUNSETIFF is an ioctl that no library wraps")]

use super::TunError;
use rustix::fs::{Mode, OFlags, open};
use std::{
    io, mem,
    os::fd::{AsRawFd as _, OwnedFd},
};

/// The longest name, without its terminator.
const LONGEST: usize = libc::IFNAMSIZ - 1;

/// Creates a device of this name for raw IP packets without a header.
pub(super) fn create(name: &str) -> Result<OwnedFd, TunError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=LONGEST).contains(&name.len()) && name.bytes().all(allowed);
    // These two are directories in the kernel's listing of devices.
    if !is_name || name == "." || name == ".." {
        return Err(TunError::Name(name.to_owned()));
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open("/dev/net/tun", flags, Mode::empty());
    let device = opened.map_err(|source| TunError::Open { source: source.into() })?;
    name_it(&device, name).map_err(|source| refused(name, source))?;
    Ok(device)
}

fn refused(name: &str, source: io::Error) -> TunError {
    let name = name.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => TunError::Rights(name),
        io::ErrorKind::ResourceBusy => TunError::Busy(name),
        _ => TunError::SetUp { device: name, step: "creating it", source },
    }
}

fn name_it(device: &OwnedFd, name: &str) -> io::Result<()> {
    // SAFETY: `ifreq` is plain data, valid when zeroed.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(LONGEST)) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open; TUNSETIFF reads and writes one `ifreq`, which outlives the call.
    match unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_refused_before_the_kernel_is_asked() {
        for name in ["", "a/b", "..", "sixteen-letters-", "tun%d", "a b"] {
            assert!(matches!(create(name), Err(TunError::Name(_))), "{name}");
        }
    }

    #[test]
    fn a_missing_permission_is_named() {
        let told = refused("x", io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(told.contains("CAP_NET_ADMIN"), "{told}");
    }
}
