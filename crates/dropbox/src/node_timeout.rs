//! Decides how long a client waits for a node to which it sends data, from TCP's acknowledgements.

use std::{io, time::Duration};
use thalweg_net::Monitor;
use tokio::time::{Instant, sleep};

/// The time for each reply, besides that for its data: a commitment waits for a sync of the destination's disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// The rate at which a node reads and hashes data or stores it, bytes/s: 10 MB/s, as of a slow shared disk.
const BYTES_A_SECOND: u64 = 10_000_000;

/// The time without an acknowledgement of sent bytes after which the node or the path counts as gone.
const SILENCE: Duration = Duration::from_secs(60);

/// The time after which a reachable node that reads nothing is given up; probably its disk hangs.
const STUCK: Duration = Duration::from_secs(300);

/// The interval of checks.
const LOOK: Duration = Duration::from_secs(1);

/// The time for an answer that requires reading or storing this many bytes.
pub(super) fn answer_timeout(bytes: u64) -> Duration {
    PATIENCE + Duration::from_secs(bytes / BYTES_A_SECOND)
}

/// The state of the bytes written to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteState {
    /// Some are sent and not acknowledged.
    InFlight,
    /// None is in flight, and some are not sent: the node accepts no more at present.
    Unsent,
    /// The node's host has received all of them.
    Arrived,
}

/// Returns the number of acknowledged bytes, and the state of the others.
pub(super) fn write_state(monitor: &Monitor) -> Option<(u64, WriteState)> {
    let info = monitor.tcp_info().ok()?;
    let written = match (info.unacknowledged, info.unsent) {
        (0, 0) => WriteState::Arrived,
        (0, _) => WriteState::Unsent,
        _ => WriteState::InFlight,
    };
    Some((info.acknowledged, written))
}

/// Returns an error once the node need not be waited for any longer. `answer` is the time it may take once it has all
/// data; `None` while there is more to write.
///
/// Bytes that wait in the local socket buffer count as in flight as long as some of them are acknowledged.
pub(super) async fn watch_progress(
    mut write_state: impl FnMut() -> Option<(u64, WriteState)>,
    answer: Option<Duration>,
) -> io::Error {
    let (mut last, mut since) = (None, Instant::now());
    loop {
        // Without the kernel's counters, all bytes count as arrived.
        let (acknowledged, written) = write_state().unwrap_or((0, WriteState::Arrived));
        if last.replace(acknowledged) != Some(acknowledged) {
            since = Instant::now();
        }
        let (limit, what) = match (written, answer) {
            (WriteState::InFlight, _) => (SILENCE, "acknowledgement of the sent data"),
            (WriteState::Unsent, _) => (STUCK, "byte read by the node"),
            (WriteState::Arrived, Some(answer)) => (answer, "receipt"),
            (WriteState::Arrived, None) => (Duration::MAX, "data"),
        };
        if since.elapsed() >= limit {
            return io::Error::new(io::ErrorKind::TimedOut, format!("no {what} within {limit:?}"));
        }
        sleep(LOOK).await;
    }
}

/// [`watch_progress`] for the bytes written to the connection of `monitor`.
pub(super) async fn watch_connection(monitor: &Monitor, answer: Option<Duration>) -> io::Error {
    watch_progress(|| write_state(monitor), answer).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a connection is given up for these states, one per second, the last one repeated.
    async fn after(seen: &[(u64, WriteState)]) -> (u64, String) {
        let mut left = seen.iter();
        let mut last = seen[0];
        let begun = Instant::now();
        let write_state = || {
            last = *left.next().unwrap_or(&last);
            Some(last)
        };
        let why = watch_progress(write_state, Some(answer_timeout(0))).await;
        (begun.elapsed().as_secs(), why.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_in_the_socket_extend_the_wait_while_they_arrive() {
        // Four megabytes at 16 kB/s: four minutes after the last byte was written.
        let mut seen: Vec<_> =
            (1..=250).map(|second| (second * 16_000, WriteState::InFlight)).collect();
        seen.push((4_000_000, WriteState::Arrived));
        let (seconds, why) = after(&seen).await;
        assert!((279..=281).contains(&seconds) && why.contains("no receipt"), "{seconds} s: {why}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_path_and_a_hanging_node_are_given_up() {
        let (seconds, why) = after(&[(1, WriteState::InFlight)]).await;
        assert!(seconds == 60 && why.contains("no acknowledgement"), "{seconds} s: {why}");
        let (seconds, why) = after(&[(1, WriteState::Unsent)]).await;
        assert!(seconds == 300 && why.contains("read by the node"), "{seconds} s: {why}");
        // While there is more to write, a slow local file does not end the connection.
        let never = watch_progress(|| Some((1, WriteState::Arrived)), None);
        tokio::time::timeout(Duration::from_secs(86_400), never).await.unwrap_err();
    }

    #[test]
    fn more_data_extends_the_wait() {
        assert_eq!(answer_timeout(0), Duration::from_secs(30));
        assert_eq!(answer_timeout(1_000_000_000), Duration::from_secs(130));
    }
}
