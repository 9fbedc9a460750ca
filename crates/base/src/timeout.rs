//! Limits the time that the other end of a connection may take.

use std::{future::Future, io, time::Duration};
use tokio::time::timeout;

/// Does the work, unless it takes longer than `limit`.
///
/// # Errors
/// The work's error; `TimedOut`, whose message says that it waited for `what`.
pub async fn within<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no {what} within {limit:?}"));
    timeout(limit, work).await.map_err(late)?
}
