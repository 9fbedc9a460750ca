//! Where a download's bytes go on their way to its part.

use super::{GetError, Halt};
use bytes::Bytes;
use std::time::Duration;
use thalweg_part::{Part, PartError, WriteFailed, Writer};
use thalweg_units::PathId;
use tokio::{sync::watch, task::spawn_blocking, time::Instant};

/// Up to so many missing bytes are held in memory and written at once. Four first answers;
/// a hundred downloads at a time then hold 100 MB at most.
const HELD: u64 = 1 << 20;

/// And for so long: a slow download is written and journaled as it comes.
const PATIENCE: Duration = Duration::from_secs(1);

/// The way to a part: by a writer with a thread of its own, or, for small files that come
/// quickly, through memory, since the thread costs more than the file.
pub(super) enum Store {
    Held(Box<Held>),
    Writer(Writer),
    /// A writer could not be started; the reason is told at the end.
    Broken(std::io::Error, u64),
}

/// Bytes in memory.
pub(super) struct Held {
    part: Part,
    pieces: Pieces,
    since: Instant,
}

/// Bytes, where they belong, and the paths that they came by.
pub(super) struct Pieces {
    names: Vec<String>,
    bytes: Vec<(PathId, u64, Bytes)>,
}

impl Store {
    /// For `part`, whose bytes come by the paths called `names`.
    ///
    /// # Errors
    /// If the system allows no further thread.
    pub(super) fn new(part: Part, names: Vec<String>) -> Result<Self, Halt> {
        let missing: u64 = part.missing().iter().map(|r| r.end - r.start).sum();
        if part.key().length().is_some() && missing <= HELD {
            let (since, pieces) = (Instant::now(), Pieces { names, bytes: Vec::new() });
            return Ok(Self::Held(Box::new(Held { part, pieces, since })));
        }
        Self::followed(part, names).map(|(store, _)| store)
    }

    /// As [`new`](Self::new), always by a writer; beside it, how far the bytes are there
    /// without a gap.
    pub(super) fn followed(
        part: Part,
        names: Vec<String>,
    ) -> Result<(Self, watch::Receiver<u64>), Halt> {
        let writer = Writer::spawn(part, names).map_err(|e| Halt::Failed(GetError::System(e)))?;
        let prefix = writer.prefix();
        Ok((Self::Writer(writer), prefix))
    }

    /// Takes bytes; waits only while the disk is behind.
    ///
    /// # Errors
    /// [`WriteFailed`] if an earlier write failed; [`finish`](Self::finish) says why.
    pub(super) async fn write(
        &mut self,
        from: PathId,
        offset: u64,
        data: Bytes,
    ) -> Result<(), WriteFailed> {
        if let Self::Held(held) = self {
            held.pieces.bytes.push((from, offset, data));
            return if held.since.elapsed() < PATIENCE { Ok(()) } else { self.spill().await };
        }
        match self {
            Self::Writer(writer) => writer.write(from, offset, data).await,
            _ => Err(WriteFailed),
        }
    }

    /// Hands over to a writer what is held.
    async fn spill(&mut self) -> Result<(), WriteFailed> {
        let empty = Self::Broken(std::io::ErrorKind::Other.into(), 0);
        let Self::Held(held) = std::mem::replace(self, empty) else { return Err(WriteFailed) };
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

    /// Lets checkpoints be made by time although no bytes come.
    pub(super) async fn tick(&mut self) {
        match self {
            Self::Writer(writer) => writer.tick(),
            Self::Held(held) if held.since.elapsed() >= PATIENCE => _ = self.spill().await,
            _ => {}
        }
    }

    /// Waits until all is written and gives the part back, or the first failure; beside it,
    /// the bytes that would survive a crash.
    pub(super) async fn finish(self) -> (Result<Part, PartError>, u64) {
        match self {
            Self::Writer(writer) => writer.finish().await,
            Self::Broken(error, durable) => (Err(system(error)), durable),
            Self::Held(held) => {
                let durable = held.part.durable();
                let written = spawn_blocking(move || held.pieces.write(held.part)).await;
                written.unwrap_or_else(|e| (Err(system(std::io::Error::other(e))), durable))
            }
        }
    }
}

impl Held {
    /// Whether the part will be read again, to be compared.
    pub(super) fn has_digests(&self) -> bool {
        !self.part.key().digests().is_empty()
    }

    /// The part, and what is to be written to it.
    pub(super) fn split(self) -> (Part, Pieces) {
        (self.part, self.pieces)
    }
}

impl Pieces {
    /// Writes all to `part`; beside it, the bytes that would survive a crash. Blocks.
    pub(super) fn write(self, mut part: Part) -> (Result<Part, PartError>, u64) {
        let name = |from: &PathId| self.names.get(from.0 as usize).map_or("", String::as_str);
        let mut bytes = self.bytes.iter();
        let done = bytes.try_for_each(|(from, at, data)| part.write_from(name(from), *at, data));
        if let Err(error) = done {
            // What was written before is good: the first error is the one to tell.
            _ = part.checkpoint();
            let durable = part.durable();
            _ = part.close();
            return (Err(error), durable);
        }
        let durable = part.durable();
        (Ok(part), durable)
    }
}

fn system(source: std::io::Error) -> PartError {
    PartError::Io { what: "write", path: std::path::PathBuf::new(), source }
}
