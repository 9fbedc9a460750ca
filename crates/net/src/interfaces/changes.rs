//! What the kernel says unasked of links, addresses, routes and rules.

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

/// The groups of rtnetlink(7), as bits: links, and addresses, routes and rules of both families.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x4_0000;

/// One change brings several messages, and an interface that flaps brings many: the first is told at once,
/// those that follow so soon are taken together. So [`Changes::next`] ends twenty times a second at most.
const SETTLE: Duration = Duration::from_millis(50);

/// Tells when the interfaces of this network namespace, their addresses, routes or rules have changed.
#[derive(Debug)]
pub struct Changes {
    socket: AsyncFd<OwnedFd>,
    /// No change is told before then.
    rests_until: Instant,
}

impl Changes {
    /// Listens from now on; within a tokio runtime.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, GROUPS))?;
        socket.set_non_blocking(true)?;
        // The duplicate is the same socket, and stays in its groups.
        let socket = sys::watched(socket.as_fd().try_clone_to_owned()?)?;
        Ok(Self { socket, rests_until: Instant::now() })
    }

    /// Waits for a change. What it brings a moment later is told as another. Cancel-safe but while it
    /// rests: whoever drops it then looks for himself.
    ///
    /// # Errors
    /// The kernel's; then nothing is heard any more.
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

/// Takes all that is there, whatever it says: messages are cut, since the lists are asked for anew; `WouldBlock` if there is nothing.
fn drain(socket: &OwnedFd) -> io::Result<()> {
    let mut came = false;
    loop {
        let mut cut = [0u8; 64];
        match recv(socket, &mut cut, RecvFlags::DONTWAIT) {
            Ok(_) => came = true,
            // More came than the socket holds: what was lost was a change as well.
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

    /// That something is heard when something changes is shown in the lab, where it can.
    #[tokio::test]
    async fn who_listens_waits_until_something_changes() {
        let mut changes = Changes::watch().unwrap();
        let heard = timeout(Duration::from_millis(20), changes.next()).await;
        // Another program of this host may change something just now.
        assert!(heard.is_err() || heard.is_ok_and(|heard| heard.is_ok()));
    }
}
