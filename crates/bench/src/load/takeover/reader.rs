//! A client that continuously asks for candidates.

use std::time::Duration;
use thalweg_mesh::OracleClient;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep},
};

/// The pause between two requests.
const EACH: Duration = Duration::from_millis(20);

/// UKAIRO's m.
const M: usize = 5;

/// The results of the requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct RankingCounts {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that no oracle answered.
    pub failed: u64,
    /// The longest time of a request.
    pub worst: Duration,
}

/// The running client.
pub struct RankingClient {
    stop: oneshot::Sender<()>,
    asks: JoinHandle<RankingCounts>,
}

impl RankingClient {
    /// Starts the client.
    pub fn start(client: OracleClient) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop, asks: tokio::spawn(ask(client, stopped)) }
    }

    /// Stops the client and returns its results.
    ///
    /// # Errors
    /// When its task has died.
    pub async fn end(self) -> anyhow::Result<RankingCounts> {
        _ = self.stop.send(());
        Ok(self.asks.await?)
    }
}

async fn ask(client: OracleClient, mut stopped: oneshot::Receiver<()>) -> RankingCounts {
    let mut reads = RankingCounts::default();
    while stopped.try_recv().is_err() {
        let began = Instant::now();
        match client.candidates(None, M).await {
            Ok(_) => reads.answered += 1,
            Err(error) => {
                thalweg_console::note!("cannot read candidates: {error}");
                reads.failed += 1;
            }
        }
        reads.worst = reads.worst.max(began.elapsed());
        sleep(EACH).await;
    }
    reads
}
