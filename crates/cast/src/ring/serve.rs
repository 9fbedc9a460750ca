//! The parent's end of a leg that streams: one child of the ring.

use super::shared::SharedRing;
use crate::leg::{Hear, Leg, Say, invalid};
use std::{io, sync::Arc, time::Duration};
use thalweg_fountain::ChildId;
use thalweg_wire::cast::{Frame, MAX_RANGES, MAX_WISH, Said, Wish};
use tokio::time::{sleep, timeout};

/// A child that says nothing for so long is let go; it says something every half minute.
const IDLE: Duration = Duration::from_secs(120);

/// What it has it says so soon.
const PREFACE: Duration = Duration::from_secs(20);

/// In so many messages at most: blocks that it has, and what it lacks of those it had begun.
const FIRST: usize = 256;

/// With so many runs in all at most, 16 B each.
const FIRST_RUNS: usize = 1 << 16;

/// What a connection is given by one call of the system: on a fast leg its other end is woken once for so much.
const AT_ONCE: usize = 256 * 1024;

/// Something is said to a child at least so often, so that it knows of us.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Who gives the digests of repair symbols.
pub trait Sheets {
    /// A child needs those of a block: gives them to it now or when they come.
    fn needed(&self, child: ChildId, block: u32);
}

/// Serves one child until it says goodbye or is gone.
///
/// # Errors
/// The connection's; a child that does not keep to the protocol.
pub async fn serve(ring: &Arc<SharedRing>, sheets: &impl Sheets, leg: Leg) -> io::Result<()> {
    let Leg { mut hear, mut say, .. } = leg;
    // What it has already it says first.
    let first = timeout(PREFACE, preface(&mut hear)).await;
    let first = first.map_err(|_| io::Error::other("the child does not say what it has"))??;
    let joined = ring.join();
    for wish in first {
        if let Some(block) = ring.wish(joined.id, wish)? {
            sheets.needed(joined.id, block);
        }
    }
    let ended = tokio::select! {
        heard = listen(ring, joined.id, sheets, hear) => heard,
        poured = pour(ring, joined.id, &mut say) => poured,
    };
    drop(joined);
    say.close().await;
    ended
}

/// What a child says before it is sent anything; it ends with an empty ask.
async fn preface(hear: &mut Hear) -> io::Result<Vec<Wish>> {
    let (mut wishes, mut runs) = (Vec::new(), 0);
    while wishes.len() < FIRST && runs <= FIRST_RUNS {
        let mut wish = hear.message::<Wish>(MAX_WISH).await?;
        match &mut wish {
            Wish::Ask(runs) if runs.is_empty() => return Ok(wishes),
            Wish::Ask(its) | Wish::Done(its) | Wish::Hold(its) | Wish::Lack { runs: its, .. } => {
                if its.len() > MAX_RANGES {
                    return Err(invalid("the child says too much at once"));
                }
                // Decoded it may have room for more than it has.
                its.shrink_to_fit();
                runs += its.len();
            }
            Wish::Page(_) | Wish::RepairPage(_) | Wish::Bye | Wish::Anew => {}
        }
        wishes.push(wish);
    }
    Err(invalid("the child says too much before it begins"))
}

async fn listen(
    ring: &SharedRing,
    id: ChildId,
    sheets: &impl Sheets,
    mut hear: Hear,
) -> io::Result<()> {
    loop {
        let heard = timeout(IDLE, hear.message::<Wish>(MAX_WISH)).await;
        let wish = heard.map_err(|_| io::Error::other("the child is silent"))??;
        if wish == Wish::Bye {
            return Ok(());
        }
        if let Some(block) = ring.wish(id, wish)? {
            sheets.needed(id, block);
        }
    }
}

/// What the child's connection takes, when it takes it; it alone is waited for.
async fn pour(ring: &SharedRing, id: ChildId, say: &mut Say) -> io::Result<()> {
    let mut is_flushed = true;
    loop {
        let fresh = ring.fresh.notified();
        let most = if say.takes_several() { AT_ONCE } else { 0 };
        let taken = say.offered(|| ring.offer(id, most), |n| ring.took(id, n)).await?;
        if taken.is_some() {
            is_flushed = false;
            continue;
        }
        if !is_flushed {
            say.flush().await?;
            is_flushed = true;
            continue;
        }
        tokio::select! {
            () = fresh => {}
            () = sleep(SIGN_OF_LIFE) => {
                say.bytes(&Frame::message(&Said::Have(Vec::new()))).await?;
            }
        }
    }
}
