//! From a member's name to a session of this node's daemon.

use super::{Session, SessionError, Terms, Trains};
use std::io;
use thalweg_mesh::member_dialer::DialMemberError;
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::{Stream, channel::Protocol};
use thalweg_units::NodeId;
use thalweg_wire::mesh::Name;
use thiserror::Error;

/// There is no session.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The channel.
    #[error("{0}")]
    Dial(#[from] DialMemberError),
    /// The session itself.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// This host's own network, or its calibration.
    #[error("this host: {0}")]
    Here(#[from] io::Error),
    /// It is this host.
    #[error("`{0}` is this host: name another member, to which a path leads")]
    Oneself(Name),
    /// Whoever it is.
    #[error("no member of the roster is `{0}`, or it has no node")]
    Nobody(Name),
}

/// Opens a session with the member, and whose it is; the endpoints are running. With `carries` packets ride in its
/// trains where both carry.
///
/// # Errors
/// [`OpenError`].
pub async fn open(
    trains: &Trains,
    reach: &MemberDialer,
    to: &Name,
    carries: bool,
) -> Result<(Session<Stream>, NodeId), OpenError> {
    if to == reach.me() {
        return Err(OpenError::Oneself(to.clone()));
    }
    let nobody = || OpenError::Nobody(to.clone());
    let roster = reach.roster().map_err(|_| nobody())?;
    let key = roster.by_name(to).and_then(|member| member.node).ok_or_else(nobody)?;
    // Before the channel, which is not to be silent meanwhile.
    let here = trains.calibrated().await?;
    let channel = reach.channel(to, &[], Protocol::Probe).await?;
    let tcp = channel.get_ref().tcp().ok_or(io::ErrorKind::NotConnected);
    let at = tcp.map_err(io::Error::from)?.peer_addr()?.ip();
    let nowhere = || io::Error::from(io::ErrorKind::AddrNotAvailable);
    let endpoint = trains.towards(at).ok_or_else(nowhere)?;
    let terms = Terms { here, accepts_busy: false };
    let mut session = Session::open(channel, at, &endpoint, terms).await?;
    if let Some(riders) = trains.riders(key).filter(|_| carries) {
        match session.carry(riders).await {
            // Who carries nothing is still measured.
            Ok(()) | Err(SessionError::Refused(_)) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok((session, key))
}
