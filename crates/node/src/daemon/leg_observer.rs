//! Observes what channels of transfers show of this node's legs to members.

use std::{
    net::SocketAddr,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};
use thalweg_mesh::MeshPeer;
use thalweg_net::legs::{ConnectionObserver, LegWatcher as _, Legs};
use thalweg_net::{TcpInfo, channel::Channel};
use thalweg_wire::{Destination, Host, mesh::Member};
use tokio::{net::TcpStream, time::sleep};

/// The pause between two observations; that of relays is at most this long.
const PAUSE: Duration = Duration::from_secs(5);

/// Observes the connection of a channel while it is served, whatever happens to the channel, and a last time when
/// dropped.
///
/// It has a descriptor of its own, so it must be dropped when serving is over: the connection ends with its last
/// descriptor.
#[derive(Debug)]
pub(super) struct LegObserver {
    socket: OwnedFd,
    leg: ConnectionObserver,
}

impl LegObserver {
    /// Observes a channel whose other end is that of its connection, as for transfers of members.
    ///
    /// `None` if the channel came through a relay, which reports its leg itself; or from a bond on this host, whose
    /// links are observed; or if the process has no descriptor left.
    pub fn start(
        legs: &Legs,
        channel: &Channel<TcpStream>,
        peer: &MeshPeer,
        from: SocketAddr,
    ) -> Option<Self> {
        let (tcp, member) = (channel.get_ref(), peer.member());
        let is_straight = channel.depth() == 0 && !is_inward(member, from, tcp.local_addr().ok()?);
        let socket = is_straight.then(|| tcp.as_fd().try_clone_to_owned().ok()).flatten()?;
        let leg = legs.watch(Some(member.name.clone()), None);
        let observer = Self { socket, leg };
        observer.observe();
        Some(observer)
    }

    /// Observes at regular intervals; does not return.
    pub async fn run(&self) {
        loop {
            sleep(PAUSE).await;
            self.observe();
        }
    }

    fn observe(&self) {
        if let Ok(info) = TcpInfo::of(&self.socket) {
            self.leg.record_counters(&info, &TcpInfo::default());
        }
    }
}

impl Drop for LegObserver {
    fn drop(&mut self) {
        self.observe();
    }
}

/// Whether a connection was made on this host, but not by a member that is on this host.
fn is_inward(member: &Member, from: SocketAddr, here: SocketAddr) -> bool {
    let ip = from.ip().to_canonical();
    let lives_here = |at: &Destination| matches!(at.host, Host::Ip(at) if at.to_canonical() == ip);
    ip == here.ip().to_canonical() && !member.addresses.iter().any(lives_here)
}
