//! The parent's end of a stream leg: serves one child of the ring.

use super::shared::SharedRing;
use crate::leg::{Leg, LegReader, LegWriter, invalid};
use std::{io, sync::Arc, time::Duration};
use thalweg_fountain::ChildId;
use thalweg_wire::cast::{ChildMessage, Frame, MAX_CHILD_MESSAGE, MAX_RANGES, ParentMessage};
use tokio::time::{sleep, timeout};

/// Timeout for a silent child. Children send a message at least every 30 s.
const CHILD_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout for the child's first messages, which tell what it has.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum number of first messages: blocks that the child has, and missing symbols of blocks that it has in part.
const MAX_FIRST_MESSAGES: usize = 256;

/// The maximum number of runs in the first messages together, 16 B each.
const MAX_FIRST_RUNS: usize = 1 << 16;

/// Bytes offered to a connection per system call. Large writes wake the other end of a fast leg less often.
const WRITE_BYTES: usize = 256 * 1024;

/// Interval of keep-alive messages to a child.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// A provider of the digests of repair symbols.
pub trait SheetProvider {
    /// A child needs the digests of a block's repair symbols: sends them now or when they are known.
    fn provide(&self, child: ChildId, block: u32);
}

/// Serves one child until it says goodbye or is gone.
///
/// # Errors
/// I/O errors of the connection, or a child that violates the protocol.
pub async fn serve(
    ring: &Arc<SharedRing>,
    sheets: &impl SheetProvider,
    leg: Leg,
) -> io::Result<()> {
    let Leg { mut reader, mut writer, .. } = leg;
    // The child first tells what it has.
    let first = timeout(PREFACE_TIMEOUT, preface(&mut reader)).await;
    let first =
        first.map_err(|_| io::Error::other("the child did not report which symbols it has"))??;
    let joined = ring.join();
    for message in first {
        if let Some(block) = ring.handle_message(joined.id, message)? {
            sheets.provide(joined.id, block);
        }
    }
    let ended = tokio::select! {
        heard = listen(ring, joined.id, sheets, reader) => heard,
        poured = send_frames(ring, joined.id, &mut writer) => poured,
    };
    drop(joined);
    writer.close().await;
    ended
}

/// Reads the child's first messages, which end with an empty request.
async fn preface(reader: &mut LegReader) -> io::Result<Vec<ChildMessage>> {
    let (mut messages, mut runs) = (Vec::new(), 0);
    while messages.len() < MAX_FIRST_MESSAGES && runs <= MAX_FIRST_RUNS {
        let mut message = reader.read_message::<ChildMessage>(MAX_CHILD_MESSAGE).await?;
        match &mut message {
            ChildMessage::Request(runs) if runs.is_empty() => return Ok(messages),
            ChildMessage::Request(its)
            | ChildMessage::Done(its)
            | ChildMessage::Held(its)
            | ChildMessage::Missing { runs: its, .. } => {
                if its.len() > MAX_RANGES {
                    return Err(invalid("the child listed too many ranges in a message"));
                }
                // The decoded vector may have spare capacity.
                its.shrink_to_fit();
                runs += its.len();
            }
            ChildMessage::Page(_)
            | ChildMessage::RepairPage(_)
            | ChildMessage::Bye
            | ChildMessage::RevokeDone => {}
        }
        messages.push(message);
    }
    Err(invalid("the child sent too many messages before its first request"))
}

async fn listen(
    ring: &SharedRing,
    id: ChildId,
    sheets: &impl SheetProvider,
    mut reader: LegReader,
) -> io::Result<()> {
    loop {
        let heard =
            timeout(CHILD_TIMEOUT, reader.read_message::<ChildMessage>(MAX_CHILD_MESSAGE)).await;
        let message =
            heard.map_err(|_| io::Error::other("no message from the child for too long"))??;
        if message == ChildMessage::Bye {
            return Ok(());
        }
        if let Some(block) = ring.handle_message(id, message)? {
            sheets.provide(id, block);
        }
    }
}

/// Sends what the child's connection takes. Only the connection is waited for, never another child.
async fn send_frames(ring: &SharedRing, id: ChildId, writer: &mut LegWriter) -> io::Result<()> {
    let mut is_flushed = true;
    loop {
        let fresh = ring.fresh.notified();
        let most = if writer.takes_several() { WRITE_BYTES } else { 0 };
        let taken =
            writer.write_offered(|| ring.offer(id, most), |n| ring.record_taken(id, n)).await?;
        if taken.is_some() {
            is_flushed = false;
            continue;
        }
        if !is_flushed {
            writer.flush().await?;
            is_flushed = true;
            continue;
        }
        tokio::select! {
            () = fresh => {}
            () = sleep(SIGN_OF_LIFE) => {
                writer.write_bytes(&Frame::encode_message(&ParentMessage::Have(Vec::new()))).await?;
            }
        }
    }
}
