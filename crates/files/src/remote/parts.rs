//! Receives relayed data: parts, each with its hash.

use super::{Remote, RemoteError, invalid, unexpected, within};
use std::io;
use thalweg_wire::object::{Failure, MAX_PART, Reply, TransferHash};
use tokio::io::AsyncReadExt as _;

impl Remote {
    /// Receives the number of parts of the oldest unanswered request, which has the replies of `Redeem`. The caller
    /// then receives exactly this many [`part`](Self::part)s, and calls [`end_parts`](Self::end_parts) once.
    ///
    /// # Errors
    /// [`RemoteError::Refused`] if the other node refuses; the request is answered then. [`RemoteError::Lost`].
    pub async fn parts(&mut self) -> Result<u32, RemoteError> {
        let reply = self.exchange(async |remote| {
            let reply = remote.message().await?;
            if matches!(reply, Reply::Failed(_)) {
                remote.answered().await?;
            }
            Ok(reply)
        });
        match reply.await? {
            Reply::Parts(parts) => Ok(parts),
            Reply::Failed(why) => Err(RemoteError::Refused { node: self.node.clone(), why }),
            _ => Err(self.lost(unexpected())),
        }
    }

    /// Receives the next part into `into`, which is cleared first. Returns the part's hash, which agrees with the other
    /// node's, or the other node's reason why there is no part.
    ///
    /// # Errors
    /// [`RemoteError::Lost`]; also if the hashes differ, which neither an honest node nor the network causes.
    pub async fn part(
        &mut self,
        into: &mut Vec<u8>,
    ) -> Result<Result<TransferHash, Failure>, RemoteError> {
        self.exchange(async |remote| {
            into.clear();
            let bytes = match remote.message().await? {
                Reply::Bytes(bytes) if bytes <= MAX_PART => bytes as usize,
                Reply::Failed(why) => return Ok(Err(why)),
                _ => return Err(unexpected()),
            };
            into.resize(bytes, 0);
            let mut filled = 0;
            while filled < bytes {
                match within(remote.channel.read(&mut into[filled..])).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    more => filled += more,
                }
            }
            let computed = TransferHash(*blake3::hash(into).as_bytes());
            match remote.message().await? {
                Reply::Sent(announced) if announced == computed => Ok(Ok(computed)),
                Reply::Sent(_) => {
                    Err(invalid("the received data does not match the announced hash"))
                }
                Reply::Failed(why) => Ok(Err(why)),
                _ => Err(unexpected()),
            }
        })
        .await
    }

    /// Ends a request after all of its parts were received.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn end_parts(&mut self) -> Result<(), RemoteError> {
        self.exchange(async |remote| remote.answered().await).await
    }
}
