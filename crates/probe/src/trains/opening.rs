//! Opens a session with a member, given its name.

use super::{Session, SessionError, Terms, Trains};
use std::io;
use thalweg_mesh::member_dialer::DialMemberError;
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::{Stream, channel::Protocol};
use thalweg_units::NodeId;
use thalweg_wire::mesh::Name;
use thiserror::Error;

/// Why no session could be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{0}")]
    Dial(#[from] DialMemberError),
    #[error("{0}")]
    Session(#[from] SessionError),
    /// This host's network or calibration failed.
    #[error("measuring failed on this host: {0}")]
    Here(#[from] io::Error),
    /// The member is this host.
    #[error("`{0}` is this host; name another member")]
    Oneself(Name),
    /// No member of this name has a node.
    #[error("the roster has no member `{0}` that runs a node")]
    Nobody(Name),
}

/// Opens a session with the member. Returns it with the key of the member's node; the endpoints must be running. With
/// `carries`, packets ride in its trains if both nodes have a carrier.
///
/// # Errors
/// [`OpenError`].
pub async fn open(
    trains: &Trains,
    dialer: &MemberDialer,
    to: &Name,
    carries: bool,
) -> Result<(Session<Stream>, NodeId), OpenError> {
    if to == dialer.me() {
        return Err(OpenError::Oneself(to.clone()));
    }
    let nobody = || OpenError::Nobody(to.clone());
    let roster = dialer.roster().map_err(|_| nobody())?;
    let key = roster.by_name(to).and_then(|member| member.node).ok_or_else(nobody)?;
    // Calibrates before the channel is opened, because the channel must not stay silent meanwhile.
    let here = trains.calibrated().await?;
    let channel = dialer.channel(to, &[], Protocol::Probe).await?;
    let tcp = channel.get_ref().tcp().ok_or(io::ErrorKind::NotConnected);
    let at = tcp.map_err(io::Error::from)?.peer_addr()?.ip();
    let nowhere = || io::Error::from(io::ErrorKind::AddrNotAvailable);
    let endpoint = trains.endpoint_towards(at).ok_or_else(nowhere)?;
    let terms = Terms { here, accepts_busy: false };
    let mut session = Session::open(channel, at, &endpoint, terms).await?;
    if let Some(riders) = trains.riders(key).filter(|_| carries) {
        match session.carry(riders).await {
            // A member without a carrier is measured all the same.
            Ok(()) | Err(SessionError::Refused(_)) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok((session, key))
}
