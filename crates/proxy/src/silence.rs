//! Detects relays that have fallen silent, so that links by them are closed.

use std::{
    future::pending,
    time::{Duration, Instant},
};
use thalweg_net::Monitor;
use tokio::time::sleep;

/// A relay that acknowledges nothing of what was sent for this long is dead: at a round trip of 300 ms TCP has sent the
/// data six times by then. The relay's own limit of 60 s is for peers that come back, such as laptops.
const GONE: Duration = Duration::from_secs(20);

/// How often a link is checked.
const LOOK: Duration = Duration::from_secs(2);

/// Completes when the link by a relay that `monitor` watches has been silent for [`GONE`] although data waits to be
/// acknowledged. A shut window is not silence, because nothing is in flight then.
///
/// `TCP_USER_TIMEOUT` would have the kernel do the same, but also ends connections with a shut window. If nothing was
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
        if heard.1.elapsed() >= GONE {
            return;
        }
    }
}
