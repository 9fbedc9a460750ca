//! Messages of a measurement, off and onto a connection.

use std::{io, time::Duration};
use thalweg_wire::mesh::measure_flow::Message;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// For each step before bytes flow: five round trips of the slowest satellite path.
pub(super) const STEP: Duration = Duration::from_secs(5);

/// What the receiver has left for the verdict, and the sender for hearing it, after the
/// longest time: a queue that takes so long is none that anybody would use.
pub(super) const AFTER: Duration = Duration::from_secs(3);

/// How often the receiver tells its count.
pub(super) const COUNTS: Duration = Duration::from_millis(250);

/// Reads one message, and not a byte more.
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
