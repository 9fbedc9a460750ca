//! A source's word about parts that left it earlier, without sending them again.
//!
//! It reads and hashes them anew. Needed where its first word is lost: with this host's process, or
//! with its own.

use super::{entry::Awaited, parcel::REQUEST, scene::Scene};
use crate::reads::{length, read};
use thalweg_files::remote::{Remote, RemoteError};
use thalweg_wire::object::{Check, ReadRequest};

/// The source's word now, part by part; `None` for parts that nobody waits for, and for those that it
/// does not have as they were listed.
///
/// # Errors
/// In words: it cannot be asked.
pub async fn ask(
    scene: &Scene,
    source: u32,
    parts: impl Iterator<Item = &Awaited>,
) -> Result<Vec<Option<Check>>, String> {
    let opened = Remote::open(&scene.errand.reach, scene.name(source), &[]).await;
    let mut remote = opened.map_err(|why| why.to_string())?;
    let (mut checks, mut asked) = (Vec::new(), Vec::new());
    let mut room = REQUEST;
    for part in parts {
        if let Some(read) = part.piece().and_then(|piece| read(&scene.errand.inventory, &piece)) {
            let length = length(&read.file);
            if length > room {
                some(&mut remote, &mut asked, &mut checks).await.map_err(|why| why.to_string())?;
                room = REQUEST;
            }
            room = room.saturating_sub(length);
            asked.push((checks.len(), read));
        }
        checks.push(None);
    }
    some(&mut remote, &mut asked, &mut checks).await.map_err(|why| why.to_string())?;
    tokio::spawn(remote.close());
    Ok(checks)
}

/// One request; its answers go to their places.
async fn some(
    remote: &mut Remote,
    asked: &mut Vec<(usize, ReadRequest)>,
    checks: &mut [Option<Check>],
) -> Result<(), RemoteError> {
    if asked.is_empty() {
        return Ok(());
    }
    let (places, reads): (Vec<usize>, Vec<ReadRequest>) = asked.drain(..).unzip();
    for (place, said) in places.into_iter().zip(remote.check_parts(reads).await?) {
        checks[place] = said.ok();
    }
    Ok(())
}
