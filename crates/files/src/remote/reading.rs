//! Bytes of files.

use super::{Remote, RemoteError, Sink, unexpected, within};
use crate::land::LandError;
use bytes::{Bytes, BytesMut};
use std::{io, time::Duration};
use thalweg_wire::object::{Check, Failure, FileRef, ReadRequest, Reply, Request};
use tokio::{io::AsyncReadExt as _, time::Instant};

/// The most bytes that a sink gets at once.
pub const MOST: usize = 256 * 1024;

/// A sink gets what there is after so long, so that who counts sees slow paths move too.
const SOON: Duration = Duration::from_millis(50);

/// How one file's bytes ended.
enum Ended {
    Sent(Check),
    Refused(Failure),
    Damaged,
    Unkept(LandError),
}

impl Remote {
    /// Reads bytes of a file.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn read(
        &mut self,
        request: ReadRequest,
        sink: &mut dyn Sink,
    ) -> Result<Check, RemoteError> {
        let from = request.from;
        self.ask(&Request::Read(request)).await?;
        self.receive(from, sink).await
    }

    /// Reads whole small files; a result for each, in their order.
    ///
    /// # Errors
    /// [`RemoteError::Lost`], [`LandError::All`]: nothing more comes, and which are whole is unknown.
    pub async fn read_all(
        &mut self,
        files: Vec<FileRef>,
        sink: &mut dyn Sink,
    ) -> Result<Vec<Result<Check, RemoteError>>, RemoteError> {
        let starts = vec![0; files.len()];
        self.ask(&Request::ReadAll(files)).await?;
        self.receive_all(&starts, sink).await
    }

    /// Reads parts of files one behind the other; a result for each, in their order.
    ///
    /// # Errors
    /// As [`Remote::read_all`].
    pub async fn read_parts(
        &mut self,
        parts: Vec<ReadRequest>,
        sink: &mut dyn Sink,
    ) -> Result<Vec<Result<Check, RemoteError>>, RemoteError> {
        let starts: Vec<u64> = parts.iter().map(|part| part.from).collect();
        self.ask(&Request::ReadParts(parts)).await?;
        self.receive_all(&starts, sink).await
    }

    /// Receives what the oldest request without an answer asks for, one that has `Read`'s
    /// replies; its first byte is at `from` of the file.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn receive(&mut self, from: u64, sink: &mut dyn Sink) -> Result<Check, RemoteError> {
        let ended = self.exchange(async |remote| {
            let ended = remote.one(0, from, sink).await?;
            remote.answered().await?;
            Ok(ended)
        });
        let ended = ended.await?;
        self.judge(ended)
    }

    /// The same for a request of several files or parts (`ReadAll`, `ReadParts`), whose first
    /// bytes are at `starts`.
    ///
    /// # Errors
    /// As [`Remote::read_all`].
    pub async fn receive_all(
        &mut self,
        starts: &[u64],
        sink: &mut dyn Sink,
    ) -> Result<Vec<Result<Check, RemoteError>>, RemoteError> {
        let all = self.exchange(async |remote| remote.each(starts, sink).await);
        let all = all.await?;
        self.judge_all(all)
    }

    /// Each one's replies and bytes; fewer if nothing more can be kept.
    async fn each(&mut self, starts: &[u64], sink: &mut dyn Sink) -> io::Result<Vec<Ended>> {
        let mut all = Vec::with_capacity(starts.len());
        for (index, from) in starts.iter().enumerate() {
            let ended = self.one(index, *from, sink).await?;
            let is_over = matches!(ended, Ended::Unkept(LandError::All { .. }));
            all.push(ended);
            if is_over {
                return Ok(all);
            }
        }
        self.answered().await?;
        Ok(all)
    }

    fn judge_all(
        &mut self,
        all: Vec<Ended>,
    ) -> Result<Vec<Result<Check, RemoteError>>, RemoteError> {
        let mut judged = Vec::with_capacity(all.len());
        for ended in all {
            match self.judge(ended) {
                Err(RemoteError::Land(why @ LandError::All { .. })) => return Err(why.into()),
                other => judged.push(other),
            }
        }
        Ok(judged)
    }

    fn judge(&mut self, ended: Ended) -> Result<Check, RemoteError> {
        match ended {
            Ended::Sent(check) => Ok(check),
            Ended::Refused(why) => Err(RemoteError::Refused { node: self.node.clone(), why }),
            Ended::Damaged => Err(RemoteError::Damaged { node: self.node.clone() }),
            Ended::Unkept(why) => {
                self.torn |= matches!(why, LandError::All { .. });
                Err(why.into())
            }
        }
    }

    /// One file's replies and bytes.
    async fn one(&mut self, index: usize, from: u64, sink: &mut dyn Sink) -> io::Result<Ended> {
        let bytes = match self.message().await? {
            Reply::Bytes(bytes) => {
                // Before any of them is taken: a sink believes that they are of this part.
                self.sent.front().map_or(Err(unexpected()), |asked| asked.is(index, bytes))?;
                bytes
            }
            Reply::Failed(why) => return Ok(Ended::Refused(why)),
            _ => return Err(unexpected()),
        };
        let mut hasher = blake3::Hasher::new();
        let unkept = self.bytes(bytes, &mut hasher, (index, from), sink).await?;
        if let Some(why @ LandError::All { .. }) = unkept {
            return Ok(Ended::Unkept(why));
        }
        let ended = match (self.message().await?, unkept) {
            (Reply::Failed(why), _) => Ended::Refused(why),
            (Reply::Sent(_), Some(why)) => Ended::Unkept(why),
            (Reply::Sent(check), None) if check.0 == *hasher.finalize().as_bytes() => {
                Ended::Sent(check)
            }
            (Reply::Sent(_), None) => Ended::Damaged,
            _ => return Err(unexpected()),
        };
        let judged = sink.judged(index, matches!(ended, Ended::Sent(_))).await;
        Ok(judged.map_or_else(Ended::Unkept, |()| ended))
    }

    /// So many bytes to the sink; the first failure of it, after which it gets none.
    async fn bytes(
        &mut self,
        mut left: u64,
        hasher: &mut blake3::Hasher,
        (index, mut at): (usize, u64),
        sink: &mut dyn Sink,
    ) -> io::Result<Option<LandError>> {
        let mut unkept = None;
        while left > 0 {
            let bytes = self.some(left).await?;
            hasher.update(&bytes);
            let count = bytes.len() as u64;
            left -= count;
            if unkept.is_none() {
                unkept = sink.take(index, at, bytes).await.err();
            }
            if matches!(unkept, Some(LandError::All { .. })) {
                break;
            }
            at += count;
        }
        Ok(unkept)
    }

    /// Bytes that are there, at most so many.
    async fn some(&mut self, left: u64) -> io::Result<Bytes> {
        let most = left.min(MOST as u64) as usize;
        let mut bytes = BytesMut::with_capacity(most);
        let mut began = None;
        while bytes.len() < most {
            // A buffer may have more room than was asked for.
            let room = &mut bytes::BufMut::limit(&mut bytes, most);
            let room_left = most - room.get_ref().len();
            room.set_limit(room_left);
            if within(self.channel.read_buf(room)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let began = began.get_or_insert_with(Instant::now);
            if began.elapsed() >= SOON {
                break;
            }
        }
        Ok(bytes.freeze())
    }
}
