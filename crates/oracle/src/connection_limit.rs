//! Limits on concurrent connections, in total and for each party. When a limit is reached, the connection that has been
//! idle longest is evicted from the party that holds the most.

use crate::{Caller, limits::network};
use parking_lot::Mutex;
use std::{
    cmp::Reverse,
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};
use thalweg_units::NodeId;
use tokio::sync::Notify;

/// A party whose connections are limited together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// The hosts at one IPv4 address, or in one IPv6 /64.
    Network(IpAddr),
    /// A member, by its principal, whichever of its keys the connection used.
    Member(NodeId),
}

impl Party {
    /// The network of the caller's address; local callers count as one.
    pub fn network(caller: &Caller) -> Self {
        Self::Network(match caller {
            Caller::Local => Ipv6Addr::LOCALHOST.into(),
            Caller::Peer { address, .. } => network(*address),
        })
    }
}

/// The limits of one kind of connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionBounds {
    /// The most connections of all parties together.
    pub all: usize,
    /// The most connections of one party.
    pub each: usize,
    /// Whether each connection is for one request. Once that has arrived, the connection cannot be evicted.
    pub once: bool,
}

/// Limits one kind of connection.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    bounds: ConnectionBounds,
    taken: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    /// The last number assigned. Numbers identify connections and order the moments since which they are idle.
    last: u64,
    of: HashMap<Party, Vec<Connection>>,
    all: usize,
}

#[derive(Debug)]
struct Connection {
    id: u64,
    /// The number of the event since which the connection is idle; `None` while a complete request is served.
    idle: Option<u64>,
    evicted: Arc<Notify>,
}

impl Connections {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn remove(&mut self, party: Party, id: u64) -> Option<Connection> {
        let connections = self.of.get_mut(&party)?;
        let at = connections.iter().position(|connection| connection.id == id)?;
        let connection = connections.swap_remove(at);
        if connections.is_empty() {
            self.of.remove(&party);
        }
        self.all -= 1;
        Some(connection)
    }

    /// Evicts the connection that has been idle longest, from the given party or else from the party that holds the
    /// most. Returns false if no connection is idle.
    fn evict_idle(&mut self, of: Option<Party>) -> bool {
        let parties = self.of.iter().filter(|(party, _)| of.is_none_or(|of| of == **party));
        let connections = parties.flat_map(|(party, connections)| {
            connections.iter().map(|connection| (*party, connection, Reverse(connections.len())))
        });
        let idle = connections.filter_map(|(party, connection, most)| {
            Some(((most, connection.idle?), party, connection.id))
        });
        let Some((_, party, id)) = idle.min_by_key(|(first, ..)| *first) else { return false };
        self.remove(party, id).iter().for_each(|connection| connection.evicted.notify_one());
        true
    }
}

impl ConnectionLimit {
    pub fn new(bounds: ConnectionBounds) -> Arc<Self> {
        Arc::new(Self { bounds, taken: Mutex::default() })
    }

    /// The number of open connections.
    pub fn len(&self) -> usize {
        self.taken.lock().all
    }

    /// Admits a connection of `party`; `None` if a limit is reached and every connection is serving a request.
    pub fn enter(self: &Arc<Self>, party: Party) -> Option<ConnectionPermit> {
        let mut taken = self.taken.lock();
        let own = taken.of.get(&party).map_or(0, Vec::len);
        if own >= self.bounds.each && !taken.evict_idle(Some(party)) {
            return None;
        }
        if taken.all >= self.bounds.all && !taken.evict_idle(None) {
            return None;
        }
        let (id, evicted) = (taken.next(), Arc::new(Notify::new()));
        let connection = Connection { id, idle: Some(id), evicted: evicted.clone() };
        taken.of.entry(party).or_default().push(connection);
        taken.all += 1;
        Some(ConnectionPermit { places: self.clone(), party, id, evicted })
    }
}

/// One admitted connection. Dropping it frees its place.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    places: Arc<ConnectionLimit>,
    party: Party,
    id: u64,
    evicted: Arc<Notify>,
}

impl ConnectionPermit {
    /// Returns when the connection was evicted.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Whether the connection is for one request.
    pub fn is_single_request(&self) -> bool {
        self.places.bounds.once
    }

    /// Marks the connection as busy, because a complete request has arrived.
    pub fn request(self: &Arc<Self>) -> RequestGuard {
        self.set(|_| None);
        RequestGuard(self.clone())
    }

    fn set(&self, idle: impl Fn(&mut Connections) -> Option<u64>) {
        let mut taken = self.places.taken.lock();
        let since = idle(&mut taken);
        let connections = taken.of.get_mut(&self.party).into_iter().flatten();
        connections
            .filter(|connection| connection.id == self.id)
            .for_each(|connection| connection.idle = since);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // `None` if the connection was evicted before.
        let _ = self.places.taken.lock().remove(self.party, self.id);
    }
}

/// A request being served. Dropping it makes the connection idle again, unless the connection is for one request.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionPermit>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if !self.0.is_single_request() {
            self.0.set(|taken| Some(taken.next()));
        }
    }
}
