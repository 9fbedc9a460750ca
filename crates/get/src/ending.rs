//! How a download ends: its bytes kept, or verified, mended if need be, and shown.

use super::{
    GetError, Halt, Outcome, PathError, Stop, Target,
    flow::Identity,
    repair,
    resource::Resource,
    run::{Run, blocking},
    store::Store,
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use thalweg_base::job::Event;
use thalweg_part::{Part, PartError};
use thalweg_paths::candidates::Candidate;
use thalweg_units::ByteSize;
use tokio::sync::watch;

impl Run<'_> {
    /// Makes durable what is there.
    pub(super) async fn close(&mut self, mut part: Part) -> Result<(), Halt> {
        self.kept = blocking(move || {
            part.checkpoint()?;
            let kept = part.durable();
            part.close().map(|()| kept)
        })
        .await?;
        Ok(())
    }

    /// Waits until all is written; a failure of that comes before any other.
    pub(super) async fn finish(&mut self, store: Store) -> Result<Part, Halt> {
        let (part, durable) = store.finish().await;
        self.kept = durable;
        part.map_err(|e| Halt::Failed(e.into()))
    }

    /// Publishes the file all of whose bytes went to `store`. See [`publish`](Self::publish).
    ///
    /// # Errors
    /// A failure of writing comes before any other.
    pub(super) async fn finish_and_publish(
        &mut self,
        store: Store,
        length: u64,
        mends: Option<&Arc<Resource>>,
        stop: &mut Stop,
    ) -> Result<(), Halt> {
        let held = match store {
            // It is not read again: what is held is written where it is published.
            Store::Held(held) if !held.has_digests() && self.request.pieces.is_none() => *held,
            store => {
                let part = self.finish(store).await?;
                return self.publish(part, length, mends, stop).await;
            }
        };
        let kept = Arc::new(AtomicU64::new(0));
        let durable = Arc::clone(&kept);
        let (part, pieces) = held.split();
        let write = move |part| {
            let (part, n) = pieces.write(part);
            durable.store(n, Ordering::Relaxed);
            part
        };
        let target = self.request.publisher.finish(part, write, length).await;
        self.kept = kept.load(Ordering::Relaxed);
        self.published = Some((target.map_err(|e| Halt::Failed(e.into()))?, length));
        Ok(())
    }

    /// Verifies the complete part and shows it: under its final name, or to the output. If
    /// a digest fails and `mends` says how the object can be fetched again, what relays
    /// brought is mended first.
    ///
    /// # Errors
    /// Wrong bytes, of which nothing is kept; or why it could not be shown.
    pub(super) async fn publish(
        &mut self,
        mut part: Part,
        length: u64,
        mends: Option<&Arc<Resource>>,
        stop: &mut Stop,
    ) -> Result<(), Halt> {
        if !part.key().digests().is_empty() {
            let (verified, found) = verify(part, length).await?;
            part = match (verified, mends) {
                (Ok(()), _) => found,
                (Err(wrong), Some(resource)) => {
                    repair::mend(self, found, resource, wrong, stop).await?
                }
                (Err(wrong), None) => return Err(self.discard(found, wrong.into()).await),
            };
        }
        if let Some(pieces) = self.request.pieces.clone() {
            let compare = move || Ok((part.verify_pieces(&pieces, length), part));
            let (compared, found) = blocking(compare).await?;
            part = match compared {
                Ok(()) => found,
                Err(wrong) => return Err(self.discard(found, wrong.into()).await),
            };
        }
        if self.flow.is_some() {
            return self.pour(part, length, stop).await;
        }
        let target = self.request.publisher.publish(part, length).await;
        let target = target.map_err(|e| Halt::Failed(e.into()))?;
        self.published = Some((target, length));
        Ok(())
    }

    /// Throws away what is wrong; the reason again.
    pub(super) async fn discard(&mut self, part: Part, why: GetError) -> Halt {
        self.kept = 0;
        match blocking(move || part.discard()).await {
            Ok(()) => Halt::Failed(why),
            Err(halt) => halt,
        }
    }

    /// Waits until the output has all.
    async fn pour(&mut self, part: Part, length: u64, stop: &mut Stop) -> Result<(), Halt> {
        let running = match (self.running.take(), &self.flow) {
            (None, Some(flow)) => {
                // With a digest nothing was shown until now.
                let reader = part.reader().map_err(|e| Halt::Failed(e.into()))?;
                let of = Identity { length: Some(length), validator: None };
                let (_, prefix) = watch::channel(length);
                Some(flow.start(reader, prefix, of)?)
            }
            (running, _) => running,
        };
        if let Some(running) = running {
            running.finish(stop).await?;
        }
        let shown = self.flow.as_ref().map_or(length, |flow| flow.shown());
        if shown < length {
            // Why is told by the flow.
            return Err(Halt::Failed(GetError::Interrupted));
        }
        let name = match &self.request.target {
            Target::Output(output) => output.path(),
            Target::File(_) | Target::In(_) => None,
        };
        self.published = Some((name.unwrap_or(Path::new("-")).to_owned(), length));
        Ok(())
    }

    /// Notes and tells that this path altered `bytes` at least.
    pub(super) fn note_corrupt(&mut self, path: &str, bytes: u64, why: String) {
        self.sink.event(&Event::Corrupt { path: path.to_owned(), bytes });
        if !self.corrupt.iter().any(|(known, _)| known == path) {
            self.corrupt.push((path.to_owned(), why));
        }
    }

    /// Notes what TLS found altered on a path with a relay; it does not tell how many bytes.
    pub(super) fn note_altered(&mut self, path: &str, error: &PathError) {
        let relayed = |c: &Candidate| c.name == path && !c.route.is_direct();
        if matches!(error, PathError::Altered) && self.request.paths.iter().any(relayed) {
            self.note_corrupt(path, 1, error.to_string());
        }
    }

    /// As [`Run::note_altered`], for a download that no path could even begin.
    pub(super) fn note_failures(&mut self, error: &GetError) {
        let GetError::Paths(failures) = error else { return };
        for (path, error) in failures {
            if !self.corrupt.iter().any(|(known, _)| known == path) {
                self.note_altered(path, error);
            }
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        let (target, length) = self.published.clone().unwrap_or_default();
        let needed = length.saturating_sub(self.resumed.unwrap_or(0));
        Outcome {
            target,
            length: ByteSize::from_bytes(length),
            fetched: ByteSize::from_bytes(self.fetched),
            duplicate: ByteSize::from_bytes(self.fetched.saturating_sub(needed)),
            took: self.started.elapsed(),
            direct_estimate: self.direct_estimate,
            phases: self.phases.clone(),
            observed: self.observed.clone(),
            corrupt: self.corrupt.clone(),
        }
    }
}

/// Compares the part with its digests; the part comes back whatever they say.
///
/// # Errors
/// If it cannot be read or is not complete.
pub(super) async fn verify(
    mut part: Part,
    length: u64,
) -> Result<(Result<(), PartError>, Part), Halt> {
    blocking(move || match part.verify(length) {
        Err(wrong @ PartError::Digest { .. }) => Ok((Err(wrong), part)),
        done => done.map(|()| (Ok(()), part)),
    })
    .await
}
