//! What channels of transfers show of this node's legs to members.

use std::{
    net::SocketAddr,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};
use thalweg_mesh::MeshPeer;
use thalweg_net::legs::{LegWatcher as _, Legs, Watched};
use thalweg_net::{TcpInfo, channel::Channel};
use thalweg_wire::{Destination, Host, mesh::Member};
use tokio::{net::TcpStream, time::sleep};

/// Between two looks, as relays have it at most.
const PAUSE: Duration = Duration::from_secs(5);

/// Looks at the connection of a channel while somebody serves it, whatever becomes of the channel; when it is
/// dropped, for the last time.
///
/// It has a descriptor of its own, so it must go when the serving is over: the connection ends with the last one.
#[derive(Debug)]
pub(super) struct Looks {
    socket: OwnedFd,
    leg: Watched,
}

impl Looks {
    /// At a channel whose other end is that of its connection, as members' transfers have it.
    ///
    /// `None`: it came by a relay, which tells of its leg itself; or on this host, from a bond, whose links are looked
    /// at; or the process has no descriptor left.
    pub fn at(
        legs: &Legs,
        channel: &Channel<TcpStream>,
        peer: &MeshPeer,
        from: SocketAddr,
    ) -> Option<Self> {
        let (tcp, member) = (channel.get_ref(), peer.member());
        let is_straight = channel.depth() == 0 && !is_inward(member, from, tcp.local_addr().ok()?);
        let socket = is_straight.then(|| tcp.as_fd().try_clone_to_owned().ok()).flatten()?;
        let leg = legs.watch(Some(member.name.clone()), None);
        let looks = Self { socket, leg };
        looks.look();
        Some(looks)
    }

    /// For ever.
    pub async fn keep(&self) {
        loop {
            sleep(PAUSE).await;
            self.look();
        }
    }

    fn look(&self) {
        if let Ok(info) = TcpInfo::of(&self.socket) {
            self.leg.saw(&info, &TcpInfo::default());
        }
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.look();
    }
}

/// Whether a connection was made on this host, by somebody else than a member that is on this host.
fn is_inward(member: &Member, from: SocketAddr, here: SocketAddr) -> bool {
    let ip = from.ip().to_canonical();
    let lives_here = |at: &Destination| matches!(at.host, Host::Ip(at) if at.to_canonical() == ip);
    ip == here.ip().to_canonical() && !member.addresses.iter().any(lives_here)
}
