//! Relays that have fallen silent: links by them are let go.

use std::{
    future::pending,
    time::{Duration, Instant},
};
use thalweg_net::Monitor;
use tokio::time::sleep;

/// A relay that acknowledges nothing of what was sent for so long is dead: at a round trip of
/// 300 ms TCP has sent it six times by then. The relay's own measure of 60 s is for peers that
/// come back, as laptops do.
const GONE: Duration = Duration::from_secs(20);

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

/// Ends when what `monitor` watches, a link by a relay, has been silent although something waits
/// to be acknowledged. A shut window is no silence: nothing is in flight then.
///
/// `TCP_USER_TIMEOUT` would tell the kernel the same, but ends those with a shut window as well.
/// Where nothing was sent, TCP's own questions (keepalive) find a dead relay in 35 s.
pub async fn fell_silent(monitor: Option<Monitor>) {
    let Some(monitor) = monitor else { return pending().await };
    let mut heard = (0, Instant::now());
    loop {
        sleep(LOOK).await;
        // The connection is another's by now, or gone.
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
