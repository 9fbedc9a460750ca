//! Asks a source for the hashes of parts that it sent earlier, without sending them again.
//!
//! The source reads and hashes them anew. This is needed if its first report is lost, because this host's or its own
//! process restarted.

use super::{entry::AwaitedPart, parcel::REQUEST, schedule_state::ScheduleState};
use crate::reads::{length, read};
use thalweg_files::remote::{Remote, RemoteError};
use thalweg_wire::object::{ReadRequest, TransferHash};

/// Returns the source's present hashes of the parts; `None` for parts that are not wanted, and for those that have
/// changed since they were listed.
///
/// # Errors
/// Returns a message if the source cannot be asked.
pub async fn ask(
    state: &ScheduleState,
    source: u32,
    parts: impl Iterator<Item = &AwaitedPart>,
) -> Result<Vec<Option<TransferHash>>, String> {
    let opened = Remote::open(&state.context.dialer, state.name(source), &[]).await;
    let mut remote = opened.map_err(|why| why.to_string())?;
    let (mut checks, mut asked) = (Vec::new(), Vec::new());
    let mut room = REQUEST;
    for part in parts {
        if let Some(read) = part.piece().and_then(|piece| read(&state.context.inventory, &piece)) {
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

/// Sends one request and stores its answers.
async fn some(
    remote: &mut Remote,
    asked: &mut Vec<(usize, ReadRequest)>,
    checks: &mut [Option<TransferHash>],
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
