//! The last transfer of an entry, to this host: each part is verified against the source's hash before it is written.

use super::{
    entry::{AwaitedPart, SpoolEntry},
    failure_record::Suspect,
    parcel::Proof,
    recheck,
    schedule_state::ScheduleState,
    source_transfer::TransferResult,
};
use bytes::Bytes;
use std::{collections::VecDeque, sync::Arc};
use thalweg_files::{
    land::LandError,
    remote::{Remote, RemoteError},
};
use thalweg_wire::object::{Failure, Request, TransferHash};
use tokio::time::Instant;

/// Why no more of the entry arrives.
enum VerifyError {
    Lost(String),
    /// The holder no longer has it, or refuses it.
    Refused(String),
    /// The source does not report hashes.
    Unproven(String),
    Land(LandError),
    /// The data differs from the data that the source sent.
    Lied,
}

impl From<RemoteError> for VerifyError {
    fn from(why: RemoteError) -> Self {
        match why {
            RemoteError::Refused { .. } => Self::Refused(why.to_string()),
            why => Self::Lost(why.to_string()),
        }
    }
}

/// The source's hashes of the parts.
struct SourceHashes {
    checks: Vec<Option<TransferHash>>,
    /// Whether the source computed them now instead of when it sent the parts: its files may have changed since.
    again: bool,
}

/// An entry while it arrives. Dropping it gives back the missing parts.
struct ArrivingEntry<'a> {
    state: &'a ScheduleState,
    source: u32,
    /// Parts that have not arrived, and the index of the first.
    parts: VecDeque<AwaitedPart>,
    index: usize,
    held: Vec<(u32, Vec<Option<TransferHash>>)>,
    came: u64,
}

impl Drop for ArrivingEntry<'_> {
    fn drop(&mut self) {
        self.state.give_back(self.parts.drain(..).flat_map(|part| part.wanted));
    }
}

/// Reads an entry from its holder on a separate connection. Data that does not arrive waits again; if the holder broke
/// off, the entry stays there ([`ScheduleState::strand`]).
///
/// # Errors
/// [`LandError::All`].
pub async fn deliver(
    state: &Arc<ScheduleState>,
    mut entry: SpoolEntry,
) -> Result<TransferResult, LandError> {
    let parts = std::mem::take(&mut entry.parts).into();
    let held = entry.held.clone();
    let (source, holder) = (entry.source, entry.holder);
    let mut arriving = ArrivingEntry { state, source, parts, index: 0, held, came: 0 };
    let began = Instant::now();
    let ended = arriving.read(&mut entry).await;
    let (moving, bytes) = (began.elapsed(), arriving.came);
    match &ended {
        Err(VerifyError::Lost(_)) => {
            // Empty places stand for the parts that arrived.
            let came = (0..arriving.index).map(|_| AwaitedPart::none());
            entry.parts = came.chain(arriving.parts.drain(..)).collect();
            state.strand(entry);
        }
        _ => state.delete_at(holder, entry.id),
    }
    let failed = match ended {
        Ok(()) => {
            state.clear_failures(Suspect::Node(holder));
            None
        }
        Err(VerifyError::Land(why)) => return Err(why),
        Err(VerifyError::Lost(why) | VerifyError::Refused(why)) => {
            state.record_failure(Suspect::Node(holder), &why);
            Some(why)
        }
        Err(VerifyError::Unproven(why)) => {
            state.record_failure(Suspect::Node(source), &why);
            Some(why)
        }
        Err(VerifyError::Lied) => Some("it forwarded other bytes than the source sent".to_owned()),
    };
    Ok(TransferResult { bytes, moving, failed })
}

impl ArrivingEntry<'_> {
    async fn read(&mut self, entry: &mut SpoolEntry) -> Result<(), VerifyError> {
        let (mut remote, parts) = self.open(entry).await?;
        if parts as usize != self.parts.len() {
            return Err(VerifyError::Lost("its answer does not match the request".to_owned()));
        }
        let mut hashes: Option<SourceHashes> = None;
        let mut bytes = Vec::new();
        for _ in 0..parts {
            let came = remote.part(&mut bytes).await?;
            let hashes = match &mut hashes {
                Some(hashes) => hashes,
                None => hashes.insert(self.fetch_hashes(entry).await?),
            };
            self.take(&mut bytes, came, hashes).await?;
            self.index += 1;
        }
        remote.end_parts().await?;
        tokio::spawn(remote.close());
        Ok(())
    }

    async fn open(&self, entry: &SpoolEntry) -> Result<(Remote, u32), VerifyError> {
        let lost =
            |why: thalweg_mesh::member_dialer::DialMemberError| VerifyError::Lost(why.to_string());
        let name = self.state.name(entry.holder);
        let mut fresh = self.state.spares.take(name, true).await.map_err(lost)?;
        let asked = ask(&mut fresh.remote, entry).await;
        let parts = match asked {
            Err(RemoteError::Lost { .. }) if fresh.spare => {
                // The spare connection was closed while it was idle.
                fresh.remote =
                    Remote::open(self.state.spares.dialer(), name, &[]).await.map_err(lost)?;
                ask(&mut fresh.remote, entry).await?
            }
            asked => asked?,
        };
        Ok((fresh.remote, parts))
    }

    /// Returns the source's hashes: those it reported after sending, requested meanwhile, or those it computes now.
    async fn fetch_hashes(&self, entry: &mut SpoolEntry) -> Result<SourceHashes, VerifyError> {
        let proof: Proof = match entry.proof.take() {
            Some(arriving) => arriving.await.ok().flatten(),
            None => None,
        };
        if let Some(checks) = proof.filter(|proof| proof.len() == self.parts.len()) {
            return Ok(SourceHashes { checks, again: false });
        }
        // The source has forgotten the report, or the report went to an earlier process.
        let said = recheck::ask(self.state, self.source, self.parts.iter()).await;
        let checks = said.map_err(|why| {
            VerifyError::Unproven(format!("it does not report the hashes of what it sent: {why}"))
        });
        Ok(SourceHashes { checks: checks?, again: true })
    }

    /// Handles the next part, or the reason why it is missing.
    async fn take(
        &mut self,
        bytes: &mut Vec<u8>,
        came: Result<TransferHash, Failure>,
        hashes: &SourceHashes,
    ) -> Result<(), VerifyError> {
        let Some(part) = self.parts.pop_front() else { return Ok(()) };
        if part.wanted.is_empty() {
            return Ok(());
        }
        let sent = hashes.checks.get(self.index).copied().flatten();
        match (came, sent) {
            (Ok(check), Some(sent)) if check == sent && bytes.len() as u64 != part.bytes => {
                let why =
                    format!("the source sent {} bytes instead of {}", bytes.len(), part.bytes);
                self.give_up(part, &why);
                Ok(())
            }
            (Ok(check), Some(sent)) if check == sent => {
                self.keep(part, Bytes::from(std::mem::take(bytes))).await
            }
            // The file changed since it was sent; the next request for it returns that error.
            (_, None) if hashes.again => {
                self.state.give_back(part.wanted);
                Ok(())
            }
            (Ok(_), _) => {
                self.parts.push_front(part);
                self.blame_holders(self.index, sent);
                Err(VerifyError::Lied)
            }
            // The source itself could not read the part.
            (Err(why), None) => {
                self.give_up(part, &why.to_string());
                Ok(())
            }
            (Err(why), Some(_)) => {
                self.state.give_back(part.wanted);
                if let Some((holder, _)) = self.held.last() {
                    let why = format!("it does not have data that the source sent: {why}");
                    self.state.record_failure(Suspect::Node(*holder), &why);
                }
                Ok(())
            }
        }
    }

    fn give_up(&self, part: AwaitedPart, why: &str) {
        part.wanted.iter().for_each(|piece| self.state.give_up(piece, why.to_owned()));
    }

    async fn keep(&mut self, mut part: AwaitedPart, bytes: Bytes) -> Result<(), VerifyError> {
        while let Some(piece) = part.wanted.pop() {
            let at = (piece.range.start - part.from) as usize;
            let own = bytes.slice(at..at + piece.bytes() as usize);
            let written = self.state.context.land.write(piece.file, piece.range.start, own);
            match written.await {
                Ok(()) => {
                    self.came += piece.bytes();
                    self.state.mark_arrived(&piece);
                }
                Err(why @ LandError::File { .. }) => self.state.give_up(&piece, why.to_string()),
                Err(why @ LandError::All { .. }) => {
                    part.wanted.push(piece);
                    self.parts.push_front(part);
                    return Err(VerifyError::Land(why));
                }
            }
        }
        Ok(())
    }

    /// Blames the first holder whose hash differs from the source's, and the node that it fetched from; if no hash
    /// differs, the last holder: it sent other bytes than it reported. For entries of an earlier session the holders
    /// are unknown.
    fn blame_holders(&self, index: usize, sent: Option<TransferHash>) {
        let told = |held: &(u32, Vec<Option<TransferHash>>)| held.1.get(index).copied().flatten();
        let first = self.held.iter().position(|held| told(held) != sent);
        let first = first.unwrap_or(self.held.len().saturating_sub(1));
        let differs = self.held.get(first).is_some_and(|held| told(held) != sent);
        // If two nodes disagree about the bytes passed between them, either may be lying.
        let suspects = if differs { first.saturating_sub(1)..=first } else { first..=first };
        for held in self.held.get(suspects).unwrap_or_default() {
            self.state.record_lie(held.0, self.source);
        }
    }
}

async fn ask(remote: &mut Remote, entry: &SpoolEntry) -> Result<u32, RemoteError> {
    remote.ask(&Request::Spooled(entry.id)).await?;
    remote.parts().await
}
