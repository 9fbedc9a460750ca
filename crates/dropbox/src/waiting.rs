//! How long a client waits for a node that it sends data to.

use std::{io, time::Duration};
use thalweg_net::Monitor;
use tokio::time::{Instant, sleep};

/// For each answer: a commitment waits for a sync of the destination's disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a node needs besides for data that it reads and hashes, or has its disk keep: 10 MB/s, a
/// slow disk that others use as well.
const BYTES_A_SECOND: u64 = 10_000_000;

/// Bytes that are under way, of which none is acknowledged for so long: the node or the path is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// The node is there, and reads nothing for so long: its disk hangs.
const STUCK: Duration = Duration::from_secs(300);

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);

/// For an answer that needs so many bytes to be read or kept.
pub(super) fn patience(bytes: u64) -> Duration {
    PATIENCE + Duration::from_secs(bytes / BYTES_A_SECOND)
}

/// Where the bytes are that were written to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Some are on the path.
    UnderWay,
    /// None is on the path, and some are here: the node takes no more now.
    Held,
    /// The node's host has all of them.
    There,
}

/// A look at a connection: how many bytes were acknowledged in all, and where the others are.
pub(super) fn look(monitor: &Monitor) -> Option<(u64, Written)> {
    let info = monitor.tcp_info().ok()?;
    let written = match (info.unacknowledged, info.unsent) {
        (0, 0) => Written::There,
        (0, _) => Written::Held,
        _ => Written::UnderWay,
    };
    Some((info.acknowledged, written))
}

/// Ends, with why, when the node need not be waited for any longer; `answer` is how long it may
/// take once it has all, `None` while there is more to write.
///
/// Bytes in our own socket are on their way as long as any of them arrives.
pub(super) async fn given_up(
    mut look: impl FnMut() -> Option<(u64, Written)>,
    answer: Option<Duration>,
) -> io::Error {
    let (mut last, mut since) = (None, Instant::now());
    loop {
        // Without the kernel's counters, all counts as arrived.
        let (acknowledged, written) = look().unwrap_or((0, Written::There));
        if last.replace(acknowledged) != Some(acknowledged) {
            since = Instant::now();
        }
        let (limit, what) = match (written, answer) {
            (Written::UnderWay, _) => (SILENCE, "acknowledgement of what was sent"),
            (Written::Held, _) => (STUCK, "byte taken by the node"),
            (Written::There, Some(answer)) => (answer, "receipt"),
            (Written::There, None) => (Duration::MAX, "data"),
        };
        if since.elapsed() >= limit {
            return io::Error::new(io::ErrorKind::TimedOut, format!("no {what} within {limit:?}"));
        }
        sleep(LOOK).await;
    }
}

/// The same for a connection.
pub(super) async fn gone(monitor: &Monitor, answer: Option<Duration>) -> io::Error {
    given_up(|| look(monitor), answer).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a connection is given up of which that is seen, second by second, and then the last for ever.
    async fn after(seen: &[(u64, Written)]) -> (u64, String) {
        let mut left = seen.iter();
        let mut last = seen[0];
        let begun = Instant::now();
        let look = || {
            last = *left.next().unwrap_or(&last);
            Some(last)
        };
        let why = given_up(look, Some(patience(0))).await;
        (begun.elapsed().as_secs(), why.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_in_the_socket_are_waited_for_as_long_as_they_arrive() {
        // Four megabytes at 16 kB/s: four minutes after the last one was written.
        let mut seen: Vec<_> =
            (1..=250).map(|second| (second * 16_000, Written::UnderWay)).collect();
        seen.push((4_000_000, Written::There));
        let (seconds, why) = after(&seen).await;
        assert!((279..=281).contains(&seconds) && why.contains("no receipt"), "{seconds} s: {why}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_that_is_gone_and_a_node_that_hangs_are_given_up() {
        let (seconds, why) = after(&[(1, Written::UnderWay)]).await;
        assert!(seconds == 60 && why.contains("no acknowledgement"), "{seconds} s: {why}");
        let (seconds, why) = after(&[(1, Written::Held)]).await;
        assert!(seconds == 300 && why.contains("taken by the node"), "{seconds} s: {why}");
        // While there is more to write, and it is slow to read, nobody is given up.
        let never = given_up(|| Some((1, Written::There)), None);
        tokio::time::timeout(Duration::from_secs(86_400), never).await.unwrap_err();
    }

    #[test]
    fn more_data_may_take_longer() {
        assert_eq!(patience(0), Duration::from_secs(30));
        assert_eq!(patience(1_000_000_000), Duration::from_secs(130));
    }
}
