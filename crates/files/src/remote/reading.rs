//! Reads bytes of files, and verifies the hash behind each part.

use super::{Remote, RemoteError, Sink, unexpected, within};
use crate::land::LandError;
use bytes::{Bytes, BytesMut};
use std::{io, time::Duration};
use thalweg_wire::object::{Failure, FileRef, ReadRequest, Reply, Request, TransferHash};
use tokio::{io::AsyncReadExt as _, time::Instant};

/// The most bytes that a sink gets at a time.
pub const MAX_CHUNK: usize = 256 * 1024;

/// After this time a sink gets the bytes that have arrived, so that rates of slow paths can be measured too.
const MAX_DELAY: Duration = Duration::from_millis(50);

/// The result of one part.
enum PartResult {
    Sent(TransferHash),
    Refused(Failure),
    Damaged,
    Unkept(LandError),
}

impl Remote {
    /// Reads a range of a file.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn read(
        &mut self,
        request: ReadRequest,
        sink: &mut dyn Sink,
    ) -> Result<TransferHash, RemoteError> {
        let from = request.from;
        self.ask(&Request::Read(request)).await?;
        self.receive(from, sink).await
    }

    /// Reads whole small files. Returns a result for each, in their order.
    ///
    /// # Errors
    /// [`RemoteError::Lost`], [`LandError::All`]: no more bytes arrive, and it is unknown which files are complete.
    pub async fn read_all(
        &mut self,
        files: Vec<FileRef>,
        sink: &mut dyn Sink,
    ) -> Result<Vec<Result<TransferHash, RemoteError>>, RemoteError> {
        let starts = vec![0; files.len()];
        self.ask(&Request::ReadAll(files)).await?;
        self.receive_all(&starts, sink).await
    }

    /// Reads parts of files one after the other. Returns a result for each, in their order.
    ///
    /// # Errors
    /// As [`Remote::read_all`].
    pub async fn read_parts(
        &mut self,
        parts: Vec<ReadRequest>,
        sink: &mut dyn Sink,
    ) -> Result<Vec<Result<TransferHash, RemoteError>>, RemoteError> {
        let starts: Vec<u64> = parts.iter().map(|part| part.from).collect();
        self.ask(&Request::ReadParts(parts)).await?;
        self.receive_all(&starts, sink).await
    }

    /// Receives the answer to the oldest unanswered request, which has the replies of `Read`; its first byte is at
    /// offset `from` of the file.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn receive(
        &mut self,
        from: u64,
        sink: &mut dyn Sink,
    ) -> Result<TransferHash, RemoteError> {
        let ended = self.exchange(async |remote| {
            let ended = remote.one(0, from, sink).await?;
            remote.answered().await?;
            Ok(ended)
        });
        let ended = ended.await?;
        self.judge(ended)
    }

    /// Receives the answer to the oldest unanswered request, for several files or parts (`ReadAll`, `ReadParts`), whose
    /// first bytes are at the offsets `starts`.
    ///
    /// # Errors
    /// As [`Remote::read_all`].
    pub async fn receive_all(
        &mut self,
        starts: &[u64],
        sink: &mut dyn Sink,
    ) -> Result<Vec<Result<TransferHash, RemoteError>>, RemoteError> {
        let all = self.exchange(async |remote| remote.each(starts, sink).await);
        let all = all.await?;
        self.judge_all(all)
    }

    /// Receives the replies and bytes of each part; fewer results if nothing more can be written.
    async fn each(&mut self, starts: &[u64], sink: &mut dyn Sink) -> io::Result<Vec<PartResult>> {
        let mut all = Vec::with_capacity(starts.len());
        for (index, from) in starts.iter().enumerate() {
            let ended = self.one(index, *from, sink).await?;
            let is_over = matches!(ended, PartResult::Unkept(LandError::All { .. }));
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
        all: Vec<PartResult>,
    ) -> Result<Vec<Result<TransferHash, RemoteError>>, RemoteError> {
        let mut results = Vec::with_capacity(all.len());
        for ended in all {
            match self.judge(ended) {
                Err(RemoteError::Land(why @ LandError::All { .. })) => return Err(why.into()),
                other => results.push(other),
            }
        }
        Ok(results)
    }

    fn judge(&mut self, ended: PartResult) -> Result<TransferHash, RemoteError> {
        match ended {
            PartResult::Sent(check) => Ok(check),
            PartResult::Refused(why) => Err(RemoteError::Refused { node: self.node.clone(), why }),
            PartResult::Damaged => Err(RemoteError::Damaged { node: self.node.clone() }),
            PartResult::Unkept(why) => {
                self.is_broken |= matches!(why, LandError::All { .. });
                Err(why.into())
            }
        }
    }

    /// Receives the replies and bytes of one part.
    async fn one(
        &mut self,
        index: usize,
        from: u64,
        sink: &mut dyn Sink,
    ) -> io::Result<PartResult> {
        let bytes = match self.message().await? {
            Reply::Bytes(bytes) => {
                // Checked before any byte is taken, since the sink assumes that all bytes are of this part.
                self.sent
                    .front()
                    .map_or(Err(unexpected()), |asked| asked.check_length(index, bytes))?;
                bytes
            }
            Reply::Failed(why) => return Ok(PartResult::Refused(why)),
            _ => return Err(unexpected()),
        };
        let mut hasher = blake3::Hasher::new();
        let unkept = self.bytes(bytes, &mut hasher, (index, from), sink).await?;
        if let Some(why @ LandError::All { .. }) = unkept {
            return Ok(PartResult::Unkept(why));
        }
        let ended = match (self.message().await?, unkept) {
            (Reply::Failed(why), _) => PartResult::Refused(why),
            (Reply::Sent(_), Some(why)) => PartResult::Unkept(why),
            (Reply::Sent(check), None) if check.0 == *hasher.finalize().as_bytes() => {
                PartResult::Sent(check)
            }
            (Reply::Sent(_), None) => PartResult::Damaged,
            _ => return Err(unexpected()),
        };
        let result = sink.end_part(index, matches!(ended, PartResult::Sent(_))).await;
        Ok(result.map_or_else(PartResult::Unkept, |()| ended))
    }

    /// Passes this many bytes to the sink. Returns the sink's first failure, after which it gets no more bytes.
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

    /// Receives bytes as they arrive, at most `left`.
    async fn some(&mut self, left: u64) -> io::Result<Bytes> {
        let most = left.min(MAX_CHUNK as u64) as usize;
        let mut bytes = BytesMut::with_capacity(most);
        let mut began = None;
        while bytes.len() < most {
            // A buffer may have a greater capacity than requested.
            let room = &mut bytes::BufMut::limit(&mut bytes, most);
            let room_left = most - room.get_ref().len();
            room.set_limit(room_left);
            if within(self.channel.read_buf(room)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let began = began.get_or_insert_with(Instant::now);
            if began.elapsed() >= MAX_DELAY {
                break;
            }
        }
        Ok(bytes.freeze())
    }
}
