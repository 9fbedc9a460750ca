//! From a member's name to an open channel for a measurement.

use super::{Shared, flow::STEP};
use socket2::SockRef;
use std::net::SocketAddr;
use thalweg_net::{
    Cause, DialOptions, SocketOptions,
    channel::{Channel, ChannelError, Protocol},
    connect, resolve,
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Member, Name};
use thiserror::Error;
use tokio::{net::TcpStream, time::timeout};

/// Names of congestion controls in Linux are shorter (`TCP_CA_NAME_MAX`).
const CONTROL_BYTES: usize = 15;

/// No channel to the member.
#[derive(Debug, Error)]
pub(super) enum Unreached {
    /// Not in the roster, or it cannot be asked.
    #[error("{0}")]
    Nobody(&'static str),
    /// The host or the settings of this one.
    #[error("{0}")]
    Here(String),
    /// No connection to any of its addresses, or another host is there.
    #[error("{0}")]
    Down(String),
    /// It lives, and does not want to.
    #[error("{0}")]
    Declined(#[source] ChannelError),
}

impl Unreached {
    /// Whether the node could not be reached at all.
    pub fn is_down(&self) -> bool {
        matches!(self, Self::Down(_))
    }
}

impl Shared {
    /// The member to send to, and its key.
    pub(super) fn partner(&self, to: &Name) -> Result<(Member, NodeId), Unreached> {
        let roster = self.membership.current();
        let member = roster.as_ref().and_then(|roster| roster.by_name(to)).cloned();
        let member = member.ok_or(Unreached::Nobody("no member of the roster has this name"))?;
        match member.node {
            Some(key) if key == self.key => Err(Unreached::Nobody("this is the node itself")),
            Some(_) if member.addresses.is_empty() => {
                Err(Unreached::Nobody("it has told the mesh no address"))
            }
            Some(key) => Ok((member, key)),
            None => Err(Unreached::Nobody("it runs no node")),
        }
    }

    /// A channel to it, its connection under this congestion control from the start of data.
    pub(super) async fn reach(
        &self,
        member: &Member,
        key: NodeId,
        control: Option<&str>,
    ) -> Result<Channel<TcpStream>, Unreached> {
        let options = options(control)?;
        // All steps together end within the half minute that an order is valid.
        let dial = DialOptions { deadline: STEP, ..DialOptions::default() };
        let connecting = async { connect(&addresses(member).await?, None, &dial).await };
        let late = || Err(Cause::TimedOut(dial.deadline));
        let tcp = timeout(dial.deadline, connecting).await.unwrap_or_else(|_| late());
        let tcp = tcp.map_err(|cause| Unreached::Down(cause.to_string()))?;
        let set = options.apply(SockRef::from(&tcp));
        set.map_err(|e| Unreached::Here(e.to_string()))?;
        let handshake = self.connector.connect(tcp, key, Protocol::Measure);
        match timeout(STEP, handshake).await {
            Ok(Ok(channel)) => Ok(channel),
            // Somebody else has its address, or nobody speaks there.
            Ok(Err(e @ ChannelError::WrongKey(_))) => Err(Unreached::Down(e.to_string())),
            Ok(Err(e)) => Err(Unreached::Declined(e)),
            Err(_) => Err(Unreached::Down(format!("it says nothing for {STEP:?}"))),
        }
    }
}

/// The oracle names the control; the kernel alone decides whether it may be used.
fn options(control: Option<&str>) -> Result<SocketOptions, Unreached> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    let is_name = |c: &&str| (1..=CONTROL_BYTES).contains(&c.len()) && c.bytes().all(letter);
    if control.is_some_and(|c| !is_name(&c)) {
        return Err(Unreached::Here("the order's congestion control is no name of one".into()));
    }
    let congestion = control.map(str::to_owned);
    Ok(SocketOptions { congestion, ..SocketOptions::default() })
}

/// All addresses of a member, in their order; names that do not resolve are left out.
async fn addresses(member: &Member) -> Result<Vec<SocketAddr>, Cause> {
    let mut all = Vec::new();
    let mut failed = Cause::NoAddress;
    for destination in &member.addresses {
        match resolve(destination).await {
            Ok(found) => all.extend(found),
            Err(cause) => failed = cause,
        }
    }
    if all.is_empty() { Err(failed) } else { Ok(all) }
}
