//! One standing channel: pings, and a new connection for each number that the relay names.

use super::{ReverseConnection, ReverseConnections, relay_channel::RelayChannel};
use std::{io, sync::Arc, time::Duration};
use thalweg_base::message;
use thalweg_net::{
    Cause,
    channel::{Channel, ChannelError, Connector},
    cut_over,
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{
    MAX_REACH_MESSAGE, Member, MemberSignal, ReachAnswer, ReachOpening, ReachRefusal, RelaySignal,
    RequestNumber,
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite, split},
    net::TcpStream,
    sync::mpsc,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

/// The time between two pings; NATs forget connections without traffic, the impatient ones after half a minute.
const PING: Duration = Duration::from_secs(4);

/// The longest time without an answer; then the relay counts as gone.
const SILENCE: Duration = Duration::from_secs(12);

/// The time limit of each step of a connection.
const STEP: Duration = Duration::from_secs(10);

/// Connections that are opened at a time; a relay lets as many clients wait.
const MAX_OPENING: usize = 64;

/// Why there is no standing channel, or no longer.
#[derive(Debug, Error)]
pub(super) enum StandingError {
    #[error("it has no node in the roster")]
    NoNode,
    #[error(transparent)]
    Dial(#[from] Cause),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("{0}")]
    Refused(ReachRefusal),
    /// The relay answers something else than it was asked.
    #[error("it does not keep to the protocol")]
    Protocol,
    #[error("it ended the channel")]
    Ended,
    #[error("it is not in the roster any more")]
    Removed,
}

/// A channel that stands.
#[derive(Debug)]
pub(super) struct StandingChannel {
    channel: Channel<TcpStream>,
    opener: Arc<Opener>,
}

/// Opens reverse connections to one relay.
#[derive(Debug)]
struct Opener {
    connector: Connector,
    relay: Member,
}

impl StandingChannel {
    /// Asks the relay to let the channel stand.
    ///
    /// # Errors
    /// [`StandingError`].
    pub async fn open(
        mut channel: RelayChannel,
        connector: Connector,
        relay: Member,
    ) -> Result<Self, StandingError> {
        match channel.ask(ReachOpening::Stand, STEP).await? {
            ReachAnswer::Stands => {
                let opener = Arc::new(Opener { connector, relay });
                Ok(Self { channel: channel.channel, opener })
            }
            _ => Err(StandingError::Protocol),
        }
    }

    /// The relay's key.
    pub fn relay(&self) -> NodeId {
        self.channel.peer()
    }

    /// Opens the connections that the relay asks for, until the channel ends. Returns why.
    pub async fn serve(self, connections: ReverseConnections) -> StandingError {
        let (from, to) = split(self.channel);
        let (declined, waiting) = mpsc::channel(MAX_OPENING);
        tokio::select! {
            why = read_signals(from, &self.opener, &connections, &declined) => why,
            why = send_signals(to, waiting) => why,
        }
    }
}

/// Reads what the relay says, and opens the connections that it asks for. They end with this future.
async fn read_signals(
    mut from: impl AsyncRead + Unpin,
    opener: &Arc<Opener>,
    connections: &ReverseConnections,
    declined: &mpsc::Sender<MemberSignal>,
) -> StandingError {
    let mut opening = JoinSet::new();
    loop {
        let read = timeout(SILENCE, message::read(&mut from, MAX_REACH_MESSAGE)).await;
        while opening.try_join_next().is_some() {}
        match read {
            Ok(Ok(Some(RelaySignal::Pong))) => {}
            Ok(Ok(Some(RelaySignal::Wanted(number)))) if opening.len() >= MAX_OPENING => {
                // A full queue means that the relay asks without end; its clients hear of it by its time limit.
                _ = declined.try_send(MemberSignal::Declined(number));
            }
            Ok(Ok(Some(RelaySignal::Wanted(number)))) => {
                let (opener, connections) = (Arc::clone(opener), connections.clone());
                // The client hears of a failure by the relay's time limit.
                opening.spawn(async move {
                    if let Ok(connection) = opener.open(number).await {
                        _ = connections.send(connection).await;
                    }
                });
            }
            Ok(Ok(None)) => return StandingError::Ended,
            Ok(Err(why)) => return why.into(),
            Err(_) => return StandingError::Late(SILENCE),
        }
    }
}

/// Sends pings and what else is to be said.
async fn send_signals(
    mut to: impl AsyncWrite + Unpin,
    mut waiting: mpsc::Receiver<MemberSignal>,
) -> StandingError {
    let mut pings = interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let signal = tokio::select! {
            _ = pings.tick() => MemberSignal::Ping,
            Some(signal) = waiting.recv() => signal,
        };
        match timeout(SILENCE, message::write(&mut to, &signal)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return why.into(),
            Err(_) => return StandingError::Late(SILENCE),
        }
    }
}

impl Opener {
    /// Opens a connection to the relay, shows the number, and leaves TLS.
    async fn open(&self, number: RequestNumber) -> Result<ReverseConnection, StandingError> {
        let mut opened = RelayChannel::open(&self.connector, &self.relay, STEP).await?;
        let from = opened.channel.get_ref().peer_addr()?;
        let showing = async {
            message::write(&mut opened.channel, &ReachOpening::Take(number)).await?;
            Ok::<_, StandingError>(cut_over(opened.channel).await?)
        };
        let (tcp, early) =
            timeout(STEP, showing).await.unwrap_or(Err(StandingError::Late(STEP)))?;
        // The relay sends nothing before it has this end's last byte in TLS.
        if !early.is_empty() {
            return Err(StandingError::Protocol);
        }
        Ok(ReverseConnection { tcp, from })
    }
}
