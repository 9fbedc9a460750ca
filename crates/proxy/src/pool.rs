//! Origin connections (connections to origins on which HTTP is spoken), and the pool of idle ones.
//!
//! An idle origin connection serves programs of one user only. With NTLM or Negotiate over HTTP (RFC 4559, section 6),
//! a server takes every request on a connection for one of the user who has authenticated there. Such an origin
//! connection serves only the program's connection on which the user did so.

use super::{body::Outgoing, request_line::RequestLine};
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use thalweg_net::{Monitor, Route, pump::Moved};
use thalweg_uplinks::interfaces::{Client, Passage};
use thalweg_wire::Destination;
use tokio::{runtime::Handle, task::AbortHandle, time::timeout};

/// The most idle connections to one origin: programs open from six (browsers) to some dozens at once.
const PER_ORIGIN: usize = 128;

/// The most idle connections in total; each holds a descriptor.
const IN_ALL: usize = 512;

/// An idle connection is not used after this long. Servers close theirs after 5 s (Apache) to 75 s (nginx); a request
/// that meets a closing connection is sent again on another one.
const IDLE: Duration = Duration::from_secs(30);

/// An origin that has answered may still take the request's content. Its connection is closed once it has taken nothing
/// for this long. The limit is generous, because no program waits for this.
const SETTLE: Duration = Duration::from_secs(60);

/// Whose requests may use an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Programs of this user.
    User(u32),
    /// The program's connection with this number.
    Connection(u64),
}

impl Owner {
    /// The owner of a connection that is opened for this program. If the program's user is unknown, the connection is
    /// not shared.
    pub async fn of_client(client: &Client) -> Self {
        client.user().await.map_or(Self::Connection(client.number()), Self::User)
    }
}

/// One connection to an origin, on which requests are sent one after the other.
pub struct OriginConnection {
    /// Whose requests may use it.
    pub owner: Owner,
    /// Whether the origin takes, or may take, all requests on it for those of a user who has authenticated there.
    pub is_reserved: bool,
    pub send: SendRequest<Outgoing>,
    /// Gives each request its target.
    pub line: RequestLine,
    /// The bytes that it has moved.
    pub moved: Arc<Moved>,
    pub monitor: Monitor,
    /// The name of its path.
    pub path: String,
    /// The route by which it was dialled.
    pub route: Route,
    /// Time from dialling until it was established.
    pub setup: Duration,
    /// Receives the connection's byte counts, if it was assigned to an interface.
    pub passage: Option<Arc<Passage>>,
    /// How long its last answer took to begin.
    pub usual: Duration,
    /// Whether it has carried a request before; then the origin may close it at any time.
    pub used: bool,
    /// Ends its task, and with it the connection.
    pub task: AbortHandle,
}

impl OriginConnection {
    /// Reserves this connection for the program's connection `client` from now on.
    pub fn reserve_for(&mut self, client: &Client) {
        (self.owner, self.is_reserved) = (Owner::Connection(client.number()), true);
    }

    /// Waits until the answered request is sent in full. Returns whether another one can be sent.
    async fn wait_until_sent(&mut self) -> bool {
        loop {
            let taken = self.moved.up.load(Relaxed);
            match timeout(SETTLE, self.send.ready()).await {
                Ok(ready) => return ready.is_ok(),
                Err(_) if self.moved.up.load(Relaxed) == taken => return false,
                Err(_) => {}
            }
        }
    }
}

/// The idle origin connections.
#[derive(Default)]
pub struct Pool(Mutex<VecDeque<(Destination, OriginConnection, Instant)>>);

/// When a program's connection ends, closes the idle origin connections reserved for it.
pub struct ReservedConnections {
    /// The pool that holds them.
    pub pool: Arc<Pool>,
    /// The number of the program's connection.
    pub number: u64,
}

impl Drop for ReservedConnections {
    fn drop(&mut self) {
        let owner = Owner::Connection(self.number);
        self.pool.0.lock().retain(|(_, link, _)| link.owner != owner);
    }
}

impl Pool {
    /// Takes an open connection to `to` by a suitable route: the one that was returned last, which is the most likely
    /// to stay open. Connections reserved for the program's connection come first, since authentication may have begun
    /// on one of them.
    pub async fn take(
        &self,
        client: &Client,
        to: &Destination,
        fits: impl Fn(&Route) -> bool,
    ) -> Option<OriginConnection> {
        let shared = Owner::of_client(client).await;
        let own = Owner::Connection(client.number());
        self.take_of(own, to, &fits).or_else(|| self.take_of(shared, to, &fits))
    }

    fn take_of(
        &self,
        owner: Owner,
        to: &Destination,
        fits: impl Fn(&Route) -> bool,
    ) -> Option<OriginConnection> {
        let mut idle = self.0.lock();
        drop_old(&mut idle);
        let is_fit = |(origin, link, _): &(Destination, OriginConnection, Instant)| {
            origin == to && link.owner == owner && fits(&link.route)
        };
        loop {
            let i = idle.iter().rposition(is_fit)?;
            let (_, link, _) = idle.remove(i)?;
            // hyper may not know yet that the connection has ended, and a request with content is sent only once.
            if link.send.is_ready() && !link.monitor.has_ended() {
                link.passage.iter().for_each(|passage| passage.set_resting(false));
                return Some(link);
            }
        }
    }

    fn give(&self, to: Destination, link: OriginConnection) {
        link.passage.iter().for_each(|passage| passage.set_resting(true));
        let mut idle = self.0.lock();
        drop_old(&mut idle);
        let same = |(i, (origin, ..)): (usize, &(Destination, _, _))| (*origin == to).then_some(i);
        let of_origin: Vec<usize> = idle.iter().enumerate().filter_map(same).collect();
        if of_origin.len() >= PER_ORIGIN {
            of_origin.first().and_then(|i| idle.remove(*i));
        } else if idle.len() >= IN_ALL {
            idle.pop_front();
        }
        idle.push_back((to, link, Instant::now()));
    }

    /// Closes connections that have been idle for too long.
    pub fn sweep(&self) {
        drop_old(&mut self.0.lock());
    }

    /// Closes all idle connections.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

fn drop_old(idle: &mut VecDeque<(Destination, OriginConnection, Instant)>) {
    let old = |(_, _, since): &&(Destination, OriginConnection, Instant)| since.elapsed() > IDLE;
    let n = idle.iter().take_while(old).count();
    idle.drain(..n);
}

/// An origin connection in use. It is dropped when the answer has ended; the connection then returns to the pool,
/// unless part of the request or the answer is still to be transferred on it.
pub struct Lease {
    link: Option<OriginConnection>,
    pool: Arc<Pool>,
    to: Destination,
    /// Another host than the origin answered.
    is_captive: bool,
}

impl Lease {
    /// Leases the origin connection `link` until the answer on it has ended.
    pub fn new(link: OriginConnection, pool: Arc<Pool>, to: Destination) -> Self {
        Self { link: Some(link), pool, to, is_captive: false }
    }

    /// Records that a captive portal answered in place of the origin: the interface is not assigned for a while, and
    /// the connection is not used again.
    pub fn mark_captive_portal(&mut self) {
        self.is_captive = true;
        if let Some(passage) = self.link.as_ref().and_then(|link| link.passage.as_ref()) {
            passage.record_impostor();
        }
    }

    /// Whether the origin connection is reserved for one program's connection because a user has authenticated on it.
    pub fn is_reserved(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_reserved)
    }

    /// Closes the connection, whatever is under way on it.
    pub fn close(mut self) {
        self.link.take().inspect(|link| link.task.abort());
    }

    /// Releases the connection without closing it, because it no longer speaks HTTP. Returns its passage, to which its
    /// traffic is reported.
    pub fn forget(mut self) -> Option<Arc<Passage>> {
        self.link.take().and_then(|link| link.passage)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        if self.is_captive {
            return link.task.abort();
        }
        if link.send.is_ready() {
            return self.pool.give(self.to.clone(), OriginConnection { used: true, ..link });
        }
        // Without a runtime nothing is served any more.
        let Ok(runtime) = Handle::try_current() else { return };
        let (pool, to) = (Arc::clone(&self.pool), self.to.clone());
        runtime.spawn(async move {
            match link.wait_until_sent().await {
                true => pool.give(to, OriginConnection { used: true, ..link }),
                false => link.task.abort(),
            }
        });
    }
}
