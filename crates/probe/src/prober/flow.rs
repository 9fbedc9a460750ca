//! Messages of a measurement flow, and its time limits.

use std::{io, time::Duration};
use thalweg_wire::mesh::measure_flow::Message;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The time for each step before bytes flow: five round trips of the slowest satellite path.
pub(super) const STEP: Duration = Duration::from_secs(5);

/// The time after the longest flow in which the receiver sends its verdict and the sender receives it. A queue that
/// delays it for longer would be of no use to anybody.
pub(super) const AFTER: Duration = Duration::from_secs(3);

/// How often the receiver reports its count.
pub(super) const COUNTS: Duration = Duration::from_millis(250);

/// Reads one message, and no byte beyond it.
///
/// # Errors
/// The connection's; `InvalidData` if it is no message.
pub(super) async fn read<M: Message>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<M> {
    let wrong = |e| io::Error::new(io::ErrorKind::InvalidData, e);
    let mut head = [0; 2];
    from.read_exact(&mut head).await?;
    let mut body = vec![0; M::length(head).map_err(wrong)?];
    from.read_exact(&mut body).await?;
    M::decode(&body).map_err(wrong)
}
