//! The standing channels of members that cannot be dialled, and the connections that they are asked for.

use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{RelaySignal, RequestNumber};
use thiserror::Error;
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::timeout,
};

/// The most standing channels: about 20 kB each.
const MAX_STANDING: usize = 4096;

/// The most clients that wait for a connection of one member; as many as a member opens at once.
const MAX_WAITING_EACH: usize = 64;

/// The most clients that wait in total.
const MAX_WAITING: usize = 1024;

/// Signals that wait for a standing channel: those of all waiting clients, and answers to pings.
const MAX_SIGNALS: usize = MAX_WAITING_EACH + 8;

/// Why there is no connection of the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReverseError {
    /// The roster has no node with the key that the client names as its next hop.
    #[error(
        "the client asks for a member by its name below `.invalid`, but names no node of the mesh as its next hop"
    )]
    Unnamed,
    /// The member has no standing channel here.
    #[error("the member has no standing channel to this relay")]
    NotStanding,
    /// Too many clients wait.
    #[error("too many clients wait for connections of members")]
    Full,
    /// The member opens no further connection, or its standing channel has ended.
    #[error("the member opened no connection: it has too many, or it has left")]
    Declined,
    #[error("the member opened no connection within {0:?}")]
    Late(Duration),
    /// The member broke the agreement, or its connection broke.
    #[error("the member's connection broke at its beginning")]
    Broken,
    /// The system provides no random bytes.
    #[error("the system provides no random bytes")]
    Random,
}

impl ReverseError {
    /// The label for counters, from a fixed set.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Unnamed => "reach_unnamed",
            Self::NotStanding => "reach_not_standing",
            Self::Full => "reach_full",
            Self::Declined => "reach_declined",
            Self::Late(_) => "reach_late",
            Self::Broken => "reach_broken",
            Self::Random => "reach_random",
        }
    }
}

/// The standing channels and the waiting clients of a relay.
#[derive(Debug, Default)]
pub struct ReverseConnections(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// By the keys of the members' nodes.
    standing: BTreeMap<NodeId, StandingChannel>,
    waiting: BTreeMap<RequestNumber, WaitingClient>,
    /// The number of the last standing channel.
    last: u64,
}

#[derive(Debug)]
struct StandingChannel {
    serial: u64,
    signals: mpsc::Sender<RelaySignal>,
    /// Dropped when a newer channel of the member replaces this one.
    _replaced: oneshot::Sender<Infallible>,
}

#[derive(Debug)]
struct WaitingClient {
    member: NodeId,
    connection: oneshot::Sender<TcpStream>,
}

/// A standing channel's place, until it is dropped.
#[derive(Debug)]
pub struct StandingPlace {
    pub of: Arc<ReverseConnections>,
    member: NodeId,
    serial: u64,
}

/// The place of a standing channel, what is to be sent on it, and the end of the place.
#[derive(Debug)]
pub struct Standing {
    pub place: StandingPlace,
    pub sender: mpsc::Sender<RelaySignal>,
    pub signals: mpsc::Receiver<RelaySignal>,
    /// Ends when a newer channel of the member takes its place.
    pub replaced: oneshot::Receiver<Infallible>,
}

impl ReverseConnections {
    /// Takes a place for a standing channel of the member; an older one of it ends. `None` if there is no place.
    pub fn stand(self: &Arc<Self>, member: NodeId) -> Option<Standing> {
        let mut tables = self.lock();
        if tables.standing.len() >= MAX_STANDING && !tables.standing.contains_key(&member) {
            return None;
        }
        tables.last += 1;
        let serial = tables.last;
        let (sender, signals) = mpsc::channel(MAX_SIGNALS);
        let (_replaced, replaced) = oneshot::channel();
        let channel = StandingChannel { serial, signals: sender.clone(), _replaced };
        tables.standing.insert(member, channel);
        let place = StandingPlace { of: Arc::clone(self), member, serial };
        Some(Standing { place, sender, signals, replaced })
    }

    /// The number of standing channels.
    pub fn standing(&self) -> usize {
        self.lock().standing.len()
    }

    /// Asks the member for a connection, and waits for it, at most this long.
    ///
    /// # Errors
    /// [`ReverseError`].
    pub async fn connect(
        &self,
        member: NodeId,
        limit: Duration,
    ) -> Result<TcpStream, ReverseError> {
        let mut number = [0; 16];
        getrandom::fill(&mut number).map_err(|_| ReverseError::Random)?;
        let number = RequestNumber(number);
        let connection = self.ask(member, number)?;
        let _waiting = Waiting { of: self, number };
        match timeout(limit, connection).await {
            Ok(Ok(tcp)) => Ok(tcp),
            Ok(Err(_)) => Err(ReverseError::Declined),
            Err(_) => Err(ReverseError::Late(limit)),
        }
    }

    fn ask(
        &self,
        member: NodeId,
        number: RequestNumber,
    ) -> Result<oneshot::Receiver<TcpStream>, ReverseError> {
        let mut tables = self.lock();
        let signals = &tables.standing.get(&member).ok_or(ReverseError::NotStanding)?.signals;
        let own = tables.waiting.values().filter(|waiting| waiting.member == member).count();
        if own >= MAX_WAITING_EACH || tables.waiting.len() >= MAX_WAITING {
            return Err(ReverseError::Full);
        }
        signals.try_send(RelaySignal::Wanted(number)).map_err(|_| ReverseError::Full)?;
        let (connection, waiting) = oneshot::channel();
        tables.waiting.insert(number, WaitingClient { member, connection });
        Ok(waiting)
    }

    /// The client that waits for this number of the member; each number is good for one connection.
    pub fn claim(
        &self,
        member: NodeId,
        number: RequestNumber,
    ) -> Option<oneshot::Sender<TcpStream>> {
        let mut tables = self.lock();
        tables.waiting.get(&number).filter(|waiting| waiting.member == member)?;
        tables.waiting.remove(&number).map(|waiting| waiting.connection)
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock()
    }
}

/// A client's entry among those that wait.
struct Waiting<'a> {
    of: &'a ReverseConnections,
    number: RequestNumber,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.of.lock().waiting.remove(&self.number);
    }
}

impl Drop for StandingPlace {
    /// Clients that wait for the member need not wait any longer, unless it has another standing channel.
    fn drop(&mut self) {
        let mut tables = self.of.lock();
        if tables.standing.get(&self.member).is_some_and(|one| one.serial == self.serial) {
            tables.standing.remove(&self.member);
            tables.waiting.retain(|_, waiting| waiting.member != self.member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::net::TcpListener;

    const LIMIT: Duration = Duration::from_secs(60);

    fn key(n: u8) -> NodeId {
        NodeId::from_bytes([n; 32])
    }

    async fn connection() -> TcpStream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_connection_goes_to_the_client_whose_number_the_member_shows() {
        let all = Arc::new(ReverseConnections::default());
        let mut standing = all.stand(key(1)).unwrap();
        let asking = tokio::spawn({
            let all = Arc::clone(&all);
            async move { all.connect(key(1), LIMIT).await }
        });
        let Some(RelaySignal::Wanted(number)) = standing.signals.recv().await else { panic!() };
        assert!(all.claim(key(2), number).is_none(), "another member cannot take it");
        assert!(all.claim(key(1), RequestNumber([0; 16])).is_none());
        all.claim(key(1), number).unwrap().send(connection().await).unwrap();
        assert!(asking.await.unwrap().is_ok());
        assert!(all.claim(key(1), number).is_none(), "a number is good for one connection");
    }

    #[tokio::test]
    async fn clients_do_not_wait_for_a_member_that_has_left() {
        let all = Arc::new(ReverseConnections::default());
        assert_eq!(all.connect(key(1), LIMIT).await.unwrap_err(), ReverseError::NotStanding);
        let first = all.stand(key(1)).unwrap();
        let mut second = all.stand(key(1)).unwrap();
        assert!(first.replaced.await.is_err(), "a newer channel ends the older one");
        drop(first.place);
        assert_eq!(all.standing(), 1, "the older one's end does not end the newer one");
        let asking = tokio::spawn({
            let all = Arc::clone(&all);
            async move { all.connect(key(1), LIMIT).await }
        });
        second.signals.recv().await.unwrap();
        drop(second.place);
        assert_eq!(asking.await.unwrap().unwrap_err(), ReverseError::Declined);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_clients_are_bounded_in_number_and_time() {
        let all = Arc::new(ReverseConnections::default());
        let standing = all.stand(key(1)).unwrap();
        let number = |n: usize| RequestNumber([n as u8; 16]);
        let asked: Vec<_> =
            (0..MAX_WAITING_EACH).map(|n| all.ask(key(1), number(n)).unwrap()).collect();
        assert_eq!(all.connect(key(1), LIMIT).await.unwrap_err(), ReverseError::Full);
        drop(asked);
        (0..MAX_WAITING_EACH).for_each(|n| drop(all.claim(key(1), number(n))));
        assert_eq!(all.connect(key(1), LIMIT).await.unwrap_err(), ReverseError::Late(LIMIT));
        assert!(all.lock().waiting.is_empty());
        drop(standing);
    }
}
