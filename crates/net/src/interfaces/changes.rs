//! Notifications of the kernel about links, addresses, routes and rules.

use crate::sys;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};
use tokio::{
    io::unix::AsyncFd,
    time::{Instant, sleep_until},
};

/// The multicast groups of rtnetlink(7), as bits: links, and addresses, routes and rules of both families.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x4_0000;

/// The shortest time between two notifications. One change causes several messages, and an interface that flaps causes
/// many: the first one is reported at once, the following ones together. So [`Changes::next`] completes at most twenty
/// times a second.
const SETTLE: Duration = Duration::from_millis(50);

/// Reports changes of this network namespace's interfaces, addresses, routes and rules.
#[derive(Debug)]
pub struct Changes {
    socket: AsyncFd<OwnedFd>,
    /// No change is reported before this time.
    rests_until: Instant,
}

impl Changes {
    /// Begins to listen. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn watch() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, GROUPS))?;
        socket.set_non_blocking(true)?;
        // The duplicate is the same socket and stays in its groups.
        let socket = sys::watched(socket.as_fd().try_clone_to_owned()?)?;
        Ok(Self { socket, rests_until: Instant::now() })
    }

    /// Waits for a change. Messages that arrive a moment later count as another change. It is cancel-safe except during
    /// the pause between two reports: a caller that drops it then has to look at the interfaces itself.
    ///
    /// # Errors
    /// The kernel's error; no change is reported afterwards.
    pub async fn next(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.socket.readable().await?;
            match ready.try_io(|socket| drain(socket.get_ref())) {
                Ok(done) => break done?,
                Err(_) => continue,
            }
        }
        sleep_until(self.rests_until).await;
        self.rests_until = Instant::now() + SETTLE;
        match drain(self.socket.get_ref()) {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(()),
        }
    }
}

/// Discards all pending messages; `WouldBlock` if there are none. Their content does not matter (they may be
/// truncated), because the lists are requested anew.
fn drain(socket: &OwnedFd) -> io::Result<()> {
    let mut came = false;
    loop {
        let mut cut = [0u8; 64];
        match recv(socket, &mut cut, RecvFlags::DONTWAIT) {
            Ok(_) => came = true,
            // More messages arrived than the socket holds; the lost ones were changes too.
            Err(Errno::NOBUFS) => came = true,
            Err(Errno::AGAIN) if came => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    /// The lab tests that a change is reported, because it can make one.
    #[tokio::test]
    async fn next_waits_until_something_changes() {
        let mut changes = Changes::watch().unwrap();
        let heard = timeout(Duration::from_millis(20), changes.next()).await;
        // Another program of this host may change something just now.
        assert!(heard.is_err() || heard.is_ok_and(|heard| heard.is_ok()));
    }
}
