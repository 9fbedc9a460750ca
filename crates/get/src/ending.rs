//! The end of a download: its bytes are kept, or verified, repaired if necessary, and published.

use super::{
    AttemptError, GetError, Outcome, PathError, Stop, Target,
    output::ObjectIdentity,
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
use thalweg_paths::{candidates::Candidate, verdict::Facts};
use thalweg_units::ByteSize;
use tokio::sync::watch;

impl Run<'_> {
    /// Makes the received bytes durable and closes the part.
    pub(super) async fn close(&mut self, mut part: Part) -> Result<(), AttemptError> {
        self.kept = blocking(move || {
            part.checkpoint()?;
            let kept = part.durable();
            part.close().map(|()| kept)
        })
        .await?;
        Ok(())
    }

    /// Waits until all bytes are written. A write error takes precedence over any other error.
    pub(super) async fn finish(&mut self, store: Store) -> Result<Part, AttemptError> {
        let (part, durable) = store.finish().await;
        self.kept = durable;
        part.map_err(|e| AttemptError::Failed(e.into()))
    }

    /// Publishes the file whose bytes are all in `store`. See [`publish`](Self::publish).
    ///
    /// # Errors
    /// A write error takes precedence over any other error.
    pub(super) async fn finish_and_publish(
        &mut self,
        store: Store,
        length: u64,
        mends: Option<&Arc<Resource>>,
        stop: &mut Stop,
    ) -> Result<(), AttemptError> {
        let held = match store {
            // The part is not read again, so the held bytes are written where the file is published.
            Store::Buffered(held) if !held.has_digests() && self.request.pieces.is_none() => *held,
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
        self.published = Some((target.map_err(|e| AttemptError::Failed(e.into()))?, length));
        Ok(())
    }

    /// Verifies the complete part and publishes it: under its final name, or to the output. If a digest fails and
    /// `mends` names the object to fetch again, the bytes that came through relays or mirrors are repaired first.
    ///
    /// # Errors
    /// If the bytes are wrong, in which case nothing is kept, or if the file cannot be published.
    pub(super) async fn publish(
        &mut self,
        mut part: Part,
        length: u64,
        mends: Option<&Arc<Resource>>,
        stop: &mut Stop,
    ) -> Result<(), AttemptError> {
        if !part.key().digests().is_empty() {
            let (verified, found) = verify(part, length).await?;
            part = match (verified, mends) {
                (Ok(()), _) => found,
                (Err(wrong), Some(resource)) => {
                    repair::repair_file(self, found, resource, wrong, stop).await?
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
        let target = target.map_err(|e| AttemptError::Failed(e.into()))?;
        self.published = Some((target, length));
        Ok(())
    }

    /// Discards the part. Returns `why`, or the error of the discard.
    pub(super) async fn discard(&mut self, part: Part, why: GetError) -> AttemptError {
        self.kept = 0;
        match blocking(move || part.discard()).await {
            Ok(()) => AttemptError::Failed(why),
            Err(halt) => halt,
        }
    }

    /// Waits until the output has received all bytes.
    async fn pour(&mut self, part: Part, length: u64, stop: &mut Stop) -> Result<(), AttemptError> {
        let running = match (self.running.take(), &self.flow) {
            (None, Some(flow)) => {
                // With a digest, nothing has been written to the output yet.
                let reader = part.reader().map_err(|e| AttemptError::Failed(e.into()))?;
                let of = ObjectIdentity { length: Some(length), validator: None };
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
            // The flow reports the reason.
            return Err(AttemptError::Failed(GetError::Interrupted));
        }
        let name = match &self.request.target {
            Target::Output(output) => output.path(),
            Target::File(_) | Target::In(_) => None,
        };
        self.published = Some((name.unwrap_or(Path::new("-")).to_owned(), length));
        Ok(())
    }

    /// Records and reports that this path altered at least `bytes` bytes.
    pub(super) fn note_corrupt(&mut self, path: &str, bytes: u64, why: String) {
        self.sink.event(&Event::Corrupt { path: path.to_owned(), bytes });
        if !self.corrupt.iter().any(|(known, _)| known == path) {
            self.corrupt.push((path.to_owned(), why));
        }
    }

    /// Records an alteration that TLS detected on a relayed path. TLS does not tell how many bytes.
    pub(super) fn note_altered(&mut self, path: &str, error: &PathError) {
        let relayed = |c: &Candidate| c.name == path && !c.route.is_direct();
        if matches!(error, PathError::Altered) && self.request.paths.iter().any(relayed) {
            self.note_corrupt(path, 1, error.to_string());
        }
    }

    /// As [`Run::note_altered`], for a download that failed on all paths.
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
            facts: Facts::default(),
        }
    }
}

/// Compares the part with its digests. Returns the part in either case.
///
/// # Errors
/// If the part cannot be read or is incomplete.
pub(super) async fn verify(
    mut part: Part,
    length: u64,
) -> Result<(Result<(), PartError>, Part), AttemptError> {
    blocking(move || match part.verify(length) {
        Err(wrong @ PartError::Digest { .. }) => Ok((Err(wrong), part)),
        done => done.map(|()| (Ok(()), part)),
    })
    .await
}
