//! Detects relays that have fallen silent, so that origin connections through them are closed.

use std::{
    future::pending,
    time::{Duration, Instant},
};
use thalweg_net::Monitor;
use tokio::time::sleep;

/// A relay that acknowledges no sent data for this long counts as dead: at a round trip of 300 ms TCP has sent the data
/// six times by then. A relay itself waits 30 s for its peers by default (`black_hole` in `thalweg_net::liveness`).
const DEAD_AFTER: Duration = Duration::from_secs(20);

/// How often the connection is checked.
const LOOK: Duration = Duration::from_secs(2);

/// Completes when the relayed connection that `monitor` watches has been silent for [`DEAD_AFTER`] although sent data is
/// unacknowledged. Without a monitor it never completes. A receiver that closes its window is not silent, because
/// nothing is in flight then.
///
/// `TCP_USER_TIMEOUT` would have the kernel do the same, but also ends connections with a closed window. If nothing was
/// sent, TCP's keepalive finds a dead relay in 35 s.
pub async fn wait_for_silence(monitor: Option<Monitor>) {
    let Some(monitor) = monitor else { return pending().await };
    let mut heard = (0, Instant::now());
    loop {
        sleep(LOOK).await;
        // The connection was handed on, or is gone.
        let Ok(info) = monitor.tcp_info() else { return pending().await };
        let progress = info.acknowledged.wrapping_add(info.received);
        if progress != heard.0 || info.unacknowledged == 0 {
            heard = (progress, Instant::now());
        }
        if heard.1.elapsed() >= DEAD_AFTER {
            return;
        }
    }
}
