//! A client that asks for candidates all the time.

use std::time::Duration;
use thalweg_mesh::OracleClient;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep},
};

/// Between two questions.
const EACH: Duration = Duration::from_millis(20);

/// UKAIRO's m.
const M: usize = 5;

/// What came of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    /// Questions that were answered.
    pub answered: u64,
    /// Those that were not, by any oracle.
    pub failed: u64,
    /// The longest time to an answer.
    pub worst: Duration,
}

/// It asks until it is told to end.
pub struct Reader {
    stop: oneshot::Sender<()>,
    asks: JoinHandle<Reads>,
}

impl Reader {
    /// Begins to ask.
    pub fn start(client: OracleClient) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop, asks: tokio::spawn(ask(client, stopped)) }
    }

    /// Ends: what came of it.
    ///
    /// # Errors
    /// When it broke.
    pub async fn end(self) -> anyhow::Result<Reads> {
        _ = self.stop.send(());
        Ok(self.asks.await?)
    }
}

async fn ask(client: OracleClient, mut stopped: oneshot::Receiver<()>) -> Reads {
    let mut reads = Reads::default();
    while stopped.try_recv().is_err() {
        let began = Instant::now();
        match client.candidates(None, M).await {
            Ok(_) => reads.answered += 1,
            Err(error) => {
                thalweg_console::note!("no candidates: {error}");
                reads.failed += 1;
            }
        }
        reads.worst = reads.worst.max(began.elapsed());
        sleep(EACH).await;
    }
    reads
}
