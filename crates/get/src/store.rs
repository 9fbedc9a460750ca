//! Passes a download's bytes to its part.

use super::{AttemptError, GetError};
use bytes::Bytes;
use std::time::Duration;
use thalweg_part::{Part, PartError, WriteFailed, Writer};
use thalweg_units::PathId;
use tokio::{sync::watch, task::spawn_blocking, time::Instant};

/// Up to this many missing bytes are held in memory and written at once: four first answers. A hundred concurrent
/// downloads then hold at most 100 MB.
const HELD: u64 = 1 << 20;

/// The longest time that bytes are held. A slow download is written and journaled as it arrives.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes to a part: with a writer that has a thread of its own, or, for small files that arrive quickly, through
/// memory, because the thread costs more than the file.
pub(super) enum Store {
    Buffered(Box<BufferedPart>),
    Writer(Writer),
    /// A writer could not be started; `finish` returns the reason.
    Broken(std::io::Error, u64),
}

/// Bytes in memory.
pub(super) struct BufferedPart {
    part: Part,
    pieces: Pieces,
    since: Instant,
}

/// Bytes, their positions, and the paths that delivered them.
pub(super) struct Pieces {
    names: Vec<String>,
    bytes: Vec<(PathId, u64, Bytes)>,
}

impl Store {
    /// Creates the store for `part`, whose bytes come over the paths called `names`.
    ///
    /// # Errors
    /// If the system allows no further thread.
    pub(super) fn new(part: Part, names: Vec<String>) -> Result<Self, AttemptError> {
        let missing: u64 = part.missing().iter().map(|r| r.end - r.start).sum();
        if part.key().length().is_some() && missing <= HELD {
            let (since, pieces) = (Instant::now(), Pieces { names, bytes: Vec::new() });
            return Ok(Self::Buffered(Box::new(BufferedPart { part, pieces, since })));
        }
        Self::followed(part, names).map(|(store, _)| store)
    }

    /// As [`new`](Self::new), but always with a writer. Also returns the length of the gapless prefix.
    pub(super) fn followed(
        part: Part,
        names: Vec<String>,
    ) -> Result<(Self, watch::Receiver<u64>), AttemptError> {
        let writer =
            Writer::spawn(part, names).map_err(|e| AttemptError::Failed(GetError::System(e)))?;
        let prefix = writer.prefix();
        Ok((Self::Writer(writer), prefix))
    }

    /// Writes bytes. Waits only while the disk is behind.
    ///
    /// # Errors
    /// [`WriteFailed`] if an earlier write failed; [`finish`](Self::finish) returns the reason.
    pub(super) async fn write(
        &mut self,
        from: PathId,
        offset: u64,
        data: Bytes,
    ) -> Result<(), WriteFailed> {
        if let Self::Buffered(held) = self {
            held.pieces.bytes.push((from, offset, data));
            return if held.since.elapsed() < PATIENCE { Ok(()) } else { self.spill().await };
        }
        match self {
            Self::Writer(writer) => writer.write(from, offset, data).await,
            _ => Err(WriteFailed),
        }
    }

    /// Starts a writer and gives it the held bytes.
    async fn spill(&mut self) -> Result<(), WriteFailed> {
        let empty = Self::Broken(std::io::ErrorKind::Other.into(), 0);
        let Self::Buffered(held) = std::mem::replace(self, empty) else { return Err(WriteFailed) };
        let durable = held.part.durable();
        let writer = match Writer::spawn(held.part, held.pieces.names) {
            Ok(writer) => writer,
            Err(error) => {
                *self = Self::Broken(error, durable);
                return Err(WriteFailed);
            }
        };
        let mut done = Ok(());
        for (from, offset, data) in held.pieces.bytes {
            done = done.and(writer.write(from, offset, data).await);
        }
        *self = Self::Writer(writer);
        done
    }

    /// Lets time-based checkpoints happen although no bytes arrive.
    pub(super) async fn tick(&mut self) {
        match self {
            Self::Writer(writer) => writer.tick(),
            Self::Buffered(held) if held.since.elapsed() >= PATIENCE => _ = self.spill().await,
            _ => {}
        }
    }

    /// Waits until all bytes are written. Returns the part or the first error, and the number of bytes that would
    /// survive a crash.
    pub(super) async fn finish(self) -> (Result<Part, PartError>, u64) {
        match self {
            Self::Writer(writer) => writer.finish().await,
            Self::Broken(error, durable) => (Err(PartError::Thread(error)), durable),
            Self::Buffered(held) => {
                let durable = held.part.durable();
                let written = spawn_blocking(move || held.pieces.write(held.part)).await;
                let died = |e| PartError::Thread(std::io::Error::other(e));
                written.unwrap_or_else(|e| (Err(died(e)), durable))
            }
        }
    }
}

impl BufferedPart {
    /// Whether the part has digests, so that it will be read again.
    pub(super) fn has_digests(&self) -> bool {
        !self.part.key().digests().is_empty()
    }

    /// The part, and the bytes to write to it.
    pub(super) fn split(self) -> (Part, Pieces) {
        (self.part, self.pieces)
    }
}

impl Pieces {
    /// Writes all pieces to `part`. Also returns the number of bytes that would survive a crash. Blocks.
    pub(super) fn write(self, mut part: Part) -> (Result<Part, PartError>, u64) {
        let name = |from: &PathId| self.names.get(from.0 as usize).map_or("", String::as_str);
        let mut bytes = self.bytes.iter();
        let done = bytes.try_for_each(|(from, at, data)| part.write_from(name(from), *at, data));
        if let Err(error) = done {
            // The bytes before it are valid. The first error is reported, not the ones that follow.
            _ = part.checkpoint();
            let durable = part.durable();
            _ = part.close();
            return (Err(error), durable);
        }
        let durable = part.durable();
        (Ok(part), durable)
    }
}
