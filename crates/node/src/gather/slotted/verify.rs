//! The last transfer of a parcel: to this host, each part held against the source's own word
//! before any of it is written.

use super::{
    blame::Suspect,
    draw::Moved,
    parcel::{Parcel, Proof},
    scene::Scene,
};
use crate::gather::{LandError, Piece, Remote, RemoteError};
use bytes::Bytes;
use std::{collections::VecDeque, sync::Arc};
use thalweg_wire::object::{Check, Failure, Request};
use tokio::time::Instant;

/// No more of the parcel comes.
enum End {
    Lost(String),
    Land(LandError),
    /// Other bytes than the source sent.
    Lied,
}

impl From<RemoteError> for End {
    fn from(why: RemoteError) -> Self {
        Self::Lost(why.to_string())
    }
}

/// A parcel while it comes.
struct Coming<'a> {
    scene: &'a Scene,
    source: u32,
    /// Parts that have not come, with their indices.
    parts: VecDeque<(usize, Piece)>,
    held: Vec<(u32, Vec<Option<Check>>)>,
    came: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.scene.give_back(self.parts.drain(..).map(|(_, part)| part));
    }
}

/// Reads the parcel from who holds it, on a connection of its own. What does not come waits again.
///
/// # Errors
/// [`LandError::All`].
pub async fn deliver(scene: &Arc<Scene>, mut parcel: Parcel) -> Result<Moved, LandError> {
    let parts = parcel.parts.drain(..).enumerate().collect();
    let held = std::mem::take(&mut parcel.held);
    let source = parcel.source;
    let mut coming = Coming { scene, source, parts, held, came: 0 };
    let Some(holder) = coming.held.last().map(|held| held.0) else {
        let failed = Some("nobody holds it".to_owned());
        return Ok(Moved { bytes: 0, moving: std::time::Duration::ZERO, failed });
    };
    let began = Instant::now();
    let ended = coming.read(holder, &mut parcel).await;
    let moving = began.elapsed();
    scene.drop_at(holder, parcel.id);
    let bytes = coming.came;
    let failed = match ended {
        Ok(()) => {
            scene.works(Suspect::Node(holder));
            None
        }
        Err(End::Land(why)) => return Err(why),
        Err(End::Lost(why)) => {
            scene.failed(Suspect::Node(holder), &why);
            Some(why)
        }
        Err(End::Lied) => Some("it passed on other bytes than the source sent".to_owned()),
    };
    Ok(Moved { bytes, moving, failed })
}

impl Coming<'_> {
    async fn read(&mut self, holder: u32, parcel: &mut Parcel) -> Result<(), End> {
        let (mut remote, parts) = self.open(holder, parcel).await?;
        if parts as usize != self.parts.len() {
            return Err(End::Lost("its answer does not fit the question".to_owned()));
        }
        let mut proof: Option<Vec<Option<Check>>> = None;
        let mut bytes = Vec::new();
        for _ in 0..parts {
            let came = remote.part(&mut bytes).await?;
            let proof = match &mut proof {
                Some(proof) => proof,
                None => proof.insert(prove(parcel, parts as usize).await?),
            };
            self.take(&mut bytes, came, proof).await?;
        }
        remote.end_parts().await?;
        tokio::spawn(remote.close());
        Ok(())
    }

    async fn open(&self, holder: u32, parcel: &Parcel) -> Result<(Remote, u32), End> {
        let lost = |why: crate::gather::remote::ReachError| End::Lost(why.to_string());
        let name = self.scene.name(holder);
        let mut fresh = self.scene.spares.take(name, true).await.map_err(lost)?;
        let asked = ask(&mut fresh.remote, parcel).await;
        let parts = match asked {
            Err(RemoteError::Lost { .. }) if fresh.spare => {
                // It was closed while it waited.
                fresh.remote = self.scene.spares.reach().open(name, &[]).await.map_err(lost)?;
                ask(&mut fresh.remote, parcel).await?
            }
            asked => asked?,
        };
        Ok((fresh.remote, parts))
    }

    /// The next part, or why it does not come.
    async fn take(
        &mut self,
        bytes: &mut Vec<u8>,
        came: Result<Check, Failure>,
        proof: &[Option<Check>],
    ) -> Result<(), End> {
        let Some((index, part)) = self.parts.pop_front() else { return Ok(()) };
        let sent = proof.get(index).copied().flatten();
        match (came, sent) {
            (Ok(check), Some(sent)) if check == sent && bytes.len() as u64 != part.bytes() => {
                let why = format!("the source sent {} bytes for {}", bytes.len(), part.bytes());
                self.scene.give_up(&part, why);
                Ok(())
            }
            (Ok(check), Some(sent)) if check == sent => {
                self.keep(part, Bytes::from(std::mem::take(bytes))).await
            }
            (Ok(_), _) => {
                self.parts.push_front((index, part));
                self.name_liars(index, sent);
                Err(End::Lied)
            }
            // The source itself had none.
            (Err(why), None) => {
                self.scene.give_up(&part, why.to_string());
                Ok(())
            }
            (Err(why), Some(_)) => {
                self.scene.give_back([part]);
                if let Some((holder, _)) = self.held.last() {
                    let why = format!("the source sent what it has not: {why}");
                    self.scene.failed(Suspect::Node(*holder), &why);
                }
                Ok(())
            }
        }
    }

    async fn keep(&mut self, part: Piece, bytes: Bytes) -> Result<(), End> {
        let written = self.scene.errand.land.write(part.file, part.range.start, bytes);
        match written.await {
            Ok(()) => {
                self.came += part.bytes();
                self.scene.done(&part);
                Ok(())
            }
            Err(why @ LandError::File { .. }) => {
                self.scene.give_up(&part, why.to_string());
                Ok(())
            }
            Err(why @ LandError::All { .. }) => {
                self.parts.push_front((0, part));
                Err(End::Land(why))
            }
        }
    }

    /// The first that told another hash than the source, and who it had that from; the last if
    /// none did: it sent other bytes than it told.
    fn name_liars(&self, index: usize, sent: Option<Check>) {
        let told = |held: &(u32, Vec<Option<Check>>)| held.1.get(index).copied().flatten();
        let first = self.held.iter().position(|held| told(held) != sent);
        let first = first.unwrap_or(self.held.len().saturating_sub(1));
        let differs = self.held.get(first).is_some_and(|held| told(held) != sent);
        // Of two that disagree about what passed between them nobody knows which.
        let suspects = if differs { first.saturating_sub(1)..=first } else { first..=first };
        for held in self.held.get(suspects).unwrap_or_default() {
            self.scene.lied(held.0, self.source);
        }
    }
}

async fn ask(remote: &mut Remote, parcel: &Parcel) -> Result<u32, RemoteError> {
    remote.ask(&Request::Spooled(parcel.id)).await?;
    remote.parts().await
}

/// The source's word, which has come meanwhile.
async fn prove(parcel: &mut Parcel, parts: usize) -> Result<Vec<Option<Check>>, End> {
    let proof: Proof = match parcel.proof.take() {
        Some(coming) => coming.await.ok().flatten(),
        None => None,
    };
    let known = proof.filter(|proof| proof.len() == parts);
    known.ok_or_else(|| End::Lost("the source does not say what it sent".to_owned()))
}
