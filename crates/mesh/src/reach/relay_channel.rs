//! Channels of protocol `reach` to a relay.

use super::standing_channel::StandingError;
use std::{io, time::Duration};
use thalweg_base::message;
use thalweg_net::{
    DialOptions, TcpInfo,
    channel::{Channel, Connector, Protocol},
    connect, resolve,
};
use thalweg_wire::mesh::{MAX_REACH_MESSAGE, Member, ReachAnswer, ReachOpening};
use tokio::{net::TcpStream, time::timeout};

/// An open channel to a relay, on which nothing has been said.
#[derive(Debug)]
pub(super) struct RelayChannel {
    pub channel: Channel<TcpStream>,
    /// The round-trip time of its handshake.
    pub round_trip: Duration,
}

impl RelayChannel {
    /// Opens a channel to one of the relay's listed addresses, and to no other. It proves the key in the roster.
    ///
    /// # Errors
    /// [`StandingError`].
    pub async fn open(
        connector: &Connector,
        relay: &Member,
        limit: Duration,
    ) -> Result<Self, StandingError> {
        let opening = async {
            let key = relay.node.ok_or(StandingError::NoNode)?;
            let mut addresses = Vec::new();
            for at in relay.dialled_addresses() {
                // A name that does not resolve leaves the other addresses.
                addresses.extend(resolve(at).await.unwrap_or_default());
            }
            let tcp = connect(&addresses, None, &DialOptions::default()).await?;
            let channel = connector.connect(tcp, key, Protocol::Reach).await?;
            let round_trip = TcpInfo::of(channel.get_ref()).map(|info| info.min_rtt.min(info.rtt));
            Ok(Self { channel, round_trip: round_trip.unwrap_or(Duration::MAX) })
        };
        timeout(limit, opening).await.unwrap_or(Err(StandingError::Late(limit)))
    }

    /// Says what the channel is for, and reads the relay's answer.
    ///
    /// # Errors
    /// [`StandingError`].
    pub async fn ask(
        &mut self,
        opening: ReachOpening,
        limit: Duration,
    ) -> Result<ReachAnswer, StandingError> {
        let asking = async {
            message::write(&mut self.channel, &opening).await?;
            let answer = message::read(&mut self.channel, MAX_REACH_MESSAGE).await?;
            answer.ok_or(io::ErrorKind::UnexpectedEof.into())
        };
        let answered: Result<io::Result<_>, _> = timeout(limit, asking).await;
        match answered {
            Ok(Ok(ReachAnswer::Refused(why))) => Err(StandingError::Refused(why)),
            Ok(answer) => Ok(answer?),
            Err(_) => Err(StandingError::Late(limit)),
        }
    }
}
