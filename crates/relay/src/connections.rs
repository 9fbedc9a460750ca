//! The live connections of a running relay: admits clients, serves them, and at shutdown waits for them to end
//! (drains).

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

/// The pause after `accept` fails for lack of descriptors or memory: short enough to use what is freed, long enough not
/// to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The shortest time between two log lines of a kind that unknown clients can cause.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// The connections of a running relay.
pub struct Connections {
    config: Arc<RelayConfig>,
    log: Log,
    /// The running sessions, and ended ones that are not yet reaped.
    sessions: JoinSet<()>,
    summary: Summary,
    strangers_logged: LogThrottle,
    accept_logged: LogThrottle,
}

impl Connections {
    /// Creates the set without connections.
    pub fn new(config: Arc<RelayConfig>, log: Log) -> Self {
        Self {
            config,
            log,
            sessions: JoinSet::new(),
            summary: Summary::default(),
            strangers_logged: LogThrottle::default(),
            accept_logged: LogThrottle::default(),
        }
    }

    /// Waits until a connection ends; never returns while there is none. Cancel-safe.
    pub async fn wait_for_end(&mut self) {
        if self.sessions.join_next().await.is_none() {
            pending().await
        }
    }

    /// Serves an accepted connection if its client is allowed, and closes it otherwise. `permit` is its slot among
    /// [`RelayConfig::max_connections`].
    pub async fn take(
        &mut self,
        permit: Option<OwnedSemaphorePermit>,
        accepted: io::Result<(TcpStream, SocketAddr)>,
    ) {
        match accepted {
            Ok((client, from)) if self.config.admits(from.ip()) => self.serve(permit, client, from),
            Ok((_, from)) => self.count_stranger(from),
            Err(e) => self.accept_failed(&e).await,
        }
    }

    fn serve(&mut self, permit: Option<OwnedSemaphorePermit>, client: TcpStream, from: SocketAddr) {
        self.summary.served += 1;
        let (config, log) = (Arc::clone(&self.config), self.log.clone());
        self.sessions.spawn(async move {
            // This fails if the client has already left, which its reads will report.
            _ = session::leg_options().apply(SockRef::from(&client));
            log.put(session::serve(client, from, &config).await);
            drop(permit);
        });
    }

    fn count_stranger(&mut self, from: SocketAddr) {
        self.summary.strangers += 1;
        if let Some(more) = self.strangers_logged.pass(Instant::now()) {
            self.log.put(Event::new("stranger").with("client", from).with_number("unlogged", more));
        }
    }

    /// Logs an error of `accept` and pauses. The error is mostly EMFILE or ENFILE; each connection that ends frees two
    /// descriptors.
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

    /// Waits for live connections, at most [`RelayConfig::drain`], and resets the rest.
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
struct LogThrottle {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogThrottle {
    /// Returns the number of suppressed lines since the last one if a line may pass now; `None` if it may not.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < LOG_PAUSE) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throttle_passes_one_line_a_second_and_counts_the_rest() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut throttle = LogThrottle::default();
        assert_eq!(throttle.pass(at(0)), Some(0));
        assert_eq!((throttle.pass(at(1)), throttle.pass(at(999))), (None, None));
        assert_eq!(throttle.pass(at(1000)), Some(2));
    }
}
