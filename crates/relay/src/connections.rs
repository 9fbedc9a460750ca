//! The live connections of a running relay: who is served, and how they end with it.

use super::{RelayConfig, Summary, session};
use socket2::SockRef;
use std::{future::pending, io, net::SocketAddr, sync::Arc, time::Duration};
use thalweg_base::log::{Event, Log};
use tokio::{
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// Wait after accept fails for want of descriptors or memory: short enough to
/// use what frees up, long enough not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Log lines about one kind of trouble that strangers can cause: at most one in this time.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// The connections of a running relay.
pub struct Connections {
    config: Arc<RelayConfig>,
    log: Log,
    /// As many as there are places taken, and ended ones that are not yet reaped.
    sessions: JoinSet<()>,
    summary: Summary,
    strangers_logged: Throttle,
    accept_logged: Throttle,
}

impl Connections {
    /// None yet.
    pub fn new(config: Arc<RelayConfig>, log: Log) -> Self {
        Self {
            config,
            log,
            sessions: JoinSet::new(),
            summary: Summary::default(),
            strangers_logged: Throttle::default(),
            accept_logged: Throttle::default(),
        }
    }

    /// Waits until one ends; for ever while there is none. Cancel-safe.
    pub async fn one_ended(&mut self) {
        if self.sessions.join_next().await.is_none() {
            pending().await
        }
    }

    /// Serves what was accepted, if the client is allowed; `permit` is its place.
    pub async fn take(
        &mut self,
        permit: Option<OwnedSemaphorePermit>,
        accepted: io::Result<(TcpStream, SocketAddr)>,
    ) {
        match accepted {
            Ok((client, from)) if self.config.admits(from.ip()) => self.serve(permit, client, from),
            Ok((_, from)) => self.stranger(from),
            Err(e) => self.accept_failed(&e).await,
        }
    }

    fn serve(&mut self, permit: Option<OwnedSemaphorePermit>, client: TcpStream, from: SocketAddr) {
        self.summary.served += 1;
        let (config, log) = (Arc::clone(&self.config), self.log.clone());
        self.sessions.spawn(async move {
            // A client that has left already makes this fail; its reads will tell.
            _ = session::leg_options().apply(SockRef::from(&client));
            log.put(session::serve(client, from, &config).await);
            drop(permit);
        });
    }

    fn stranger(&mut self, from: SocketAddr) {
        self.summary.strangers += 1;
        if let Some(more) = self.strangers_logged.pass(Instant::now()) {
            self.log.put(Event::new("stranger").with("client", from).with_number("unlogged", more));
        }
    }

    /// Most often EMFILE or ENFILE: a connection that ends gives two descriptors back.
    async fn accept_failed(&mut self, e: &io::Error) {
        let of_one_client = [io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted];
        if of_one_client.contains(&e.kind()) {
            return;
        }
        if let Some(more) = self.accept_logged.pass(Instant::now()) {
            let event = Event::new("accept_failed").with("why", e).with_number("unlogged", more);
            self.log.put(event.with_number("live", self.sessions.len()));
        }
        sleep(ACCEPT_PAUSE).await;
    }

    /// Waits for the live ones, [`RelayConfig::drain`] at most, and resets the rest.
    pub async fn drain(mut self) -> Summary {
        let live = self.sessions.len();
        self.log.put(Event::new("draining").with_number("live", live));
        let all_ended = async { while self.sessions.join_next().await.is_some() {} };
        _ = timeout(self.config.drain, all_ended).await;
        self.summary.cut = self.sessions.len() as u64;
        self.sessions.shutdown().await;
        self.log.put(
            Event::new("stopped")
                .with_number("served", self.summary.served)
                .with_number("strangers", self.summary.strangers)
                .with_number("cut", self.summary.cut),
        );
        self.summary
    }
}

/// Lets one log line pass per [`LOG_PAUSE`], and counts the others.
#[derive(Debug, Default)]
struct Throttle {
    last: Option<Instant>,
    held_back: u64,
}

impl Throttle {
    /// `Some(held back since the last)` if a line may pass now.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < LOG_PAUSE) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throttle_passes_one_line_a_second_and_counts_the_others() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut throttle = Throttle::default();
        assert_eq!(throttle.pass(at(0)), Some(0));
        assert_eq!((throttle.pass(at(1)), throttle.pass(at(999))), (None, None));
        assert_eq!(throttle.pass(at(1000)), Some(2));
    }
}
