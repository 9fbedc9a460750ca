//! The pump between two clear legs.

use super::{
    Stopped, Terms, copy,
    liveness_watch::{LivenessWatch, PumpState},
    splice,
    turn::{ClearDirection, TurnEnd, allowance},
};
use crate::legs::LegEnd;
use socket2::SockRef;
use std::{
    io,
    net::Shutdown,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
};
use tokio::{net::TcpStream, task::yield_now};

/// Smaller pieces are copied, because one read and one write are cheaper than a pipe's three calls. Larger ones are
/// spliced.
const COPY_BELOW: usize = 16 * 1024;

/// Moves bytes until both directions have ended and everything is delivered.
///
/// # Errors
/// [`Stopped`]; the caller then resets both legs.
pub async fn both(
    client: &TcpStream,
    early: Vec<u8>,
    destination: &TcpStream,
    terms: Terms<'_>,
) -> Result<(), Stopped> {
    let throttled = [AtomicBool::new(false), AtomicBool::new(false)];
    let (up, down) = (&terms.moved.up, &terms.moved.down);
    let unheard = [AtomicBool::new(false), AtomicBool::new(false)];
    let up = ClearDirection {
        from: client,
        sender: LegEnd::Client,
        to: destination,
        moved: up,
        unheard: &unheard[0],
        cut: &unheard[1],
    };
    let down = ClearDirection {
        from: destination,
        sender: LegEnd::Destination,
        to: client,
        moved: down,
        unheard: &unheard[1],
        cut: &unheard[0],
    };
    let mut up_runs = pin!(run(up, early, terms, &throttled[0]));
    let mut down_runs = pin!(run(down, Vec::new(), terms, &throttled[1]));
    let (mut up_ended, mut down_ended) = (false, false);
    let mut watch = LivenessWatch::new(terms);
    let mut left = None;
    while !(up_ended && down_ended) {
        tokio::select! {
            done = &mut up_runs, if !up_ended => {
                match done {
                    // The bytes that the destination sent before it closed its leg must still be read.
                    Err(why) if unheard[0].load(Ordering::Relaxed) => left = Some(why),
                    done => done?,
                }
                up_ended = true;
            }
            done = &mut down_runs, if !down_ended => {
                match done {
                    // Everything that the destination has sent is written to the client.
                    Err(why @ Stopped::Broken(_)) if !unheard[1].load(Ordering::Relaxed) => {
                        left = left.or(Some(why));
                        up_ended = true;
                    }
                    done => done?,
                }
                down_ended = true;
            }
            () = watch.tick() => watch.check(Some(client), Some(destination), PumpState {
                half_closed: up_ended || down_ended,
                throttled: throttled.iter().any(|t| t.load(Ordering::Relaxed)),
            })?,
        }
    }
    match left {
        None => watch.delivered(Some(client), Some(destination)).await,
        // The client has not received everything yet; a reset now would discard it.
        Some(why) => watch.delivered(Some(client), None).await.and(Err(why)),
    }
}

/// Moves one direction: `early` first, then all bytes that arrive, then the end.
async fn run(
    way: ClearDirection<'_>,
    early: Vec<u8>,
    terms: Terms<'_>,
    throttled: &AtomicBool,
) -> Result<(), Stopped> {
    report_beginning(&way, &early, terms).await.map_err(Stopped::Broken)?;
    // An empty write would consume the socket's error, which the reader must see.
    if !early.is_empty() {
        copy::give(&way, &early).await.map_err(Stopped::Broken)?;
    }
    pay(terms, early.len(), throttled).await?;
    drop(early);
    let mut much = false;
    loop {
        let (bytes, end) = turn(&way, terms, much).await.map_err(Stopped::Broken)?;
        pay(terms, bytes, throttled).await?;
        match end {
            TurnEnd::Ended if way.cut.load(Ordering::Relaxed) => {
                return Err(Stopped::Broken(io::ErrorKind::ConnectionReset.into()));
            }
            TurnEnd::Ended => {
                return shut_down_writing(way.to).map_err(|why| {
                    way.unheard.store(true, Ordering::Relaxed);
                    Stopped::Broken(why)
                });
            }
            TurnEnd::Exhausted if much => yield_now().await,
            TurnEnd::Exhausted | TurnEnd::Drained => {}
        }
        much = bytes >= COPY_BELOW;
    }
}

/// Tells the watcher, if it wants to know, how a direction begins. The bytes stay in the socket.
async fn report_beginning(
    way: &ClearDirection<'_>,
    early: &[u8],
    terms: Terms<'_>,
) -> io::Result<()> {
    let Some(watcher) = terms.watcher.filter(|watcher| watcher.wants_beginnings()) else {
        return Ok(());
    };
    let mut first = [0; 12];
    let count = match early.is_empty() {
        true => way.from.peek(&mut first).await?,
        false => {
            let count = early.len().min(first.len());
            first[..count].copy_from_slice(&early[..count]);
            count
        }
    };
    // An end without a byte is no beginning, and less than three bytes are too few to tell.
    if count >= 3 {
        watcher.record_beginning(way.sender, &first[..count]);
    }
    Ok(())
}

/// Waits for bytes and moves them, through a pipe if `much` arrived recently.
async fn turn(
    way: &ClearDirection<'_>,
    terms: Terms<'_>,
    much: bool,
) -> io::Result<(usize, TurnEnd)> {
    way.from.readable().await?;
    if !much {
        return copy::turn(way, COPY_BELOW, COPY_BELOW).await;
    }
    let most = allowance(terms.throttle);
    match splice::turn(way, terms.pipes, most).await? {
        Some(turn) => Ok(turn),
        None => copy::turn(way, copy::CHUNK, most).await,
    }
}

/// Pays for a turn. While it waits the connection is not idle.
async fn pay(terms: Terms<'_>, bytes: usize, throttled: &AtomicBool) -> Result<(), Stopped> {
    if let Some(throttle) = terms.throttle.filter(|_| bytes > 0) {
        throttled.store(true, Ordering::Relaxed);
        throttle.take(bytes).await?;
        throttled.store(false, Ordering::Relaxed);
    }
    Ok(())
}

/// Half-closes the receiver's leg.
fn shut_down_writing(to: &TcpStream) -> io::Result<()> {
    SockRef::from(to).shutdown(Shutdown::Write)
}
