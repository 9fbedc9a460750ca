//! The pump between two legs of which one or both are sealed.
//!
//! One task polls both directions, because they share one TLS state.

use super::{
    PumpLeg, Stopped, Terms,
    liveness_watch::{LivenessWatch, PumpState},
    throttle::{Throttle, ThrottleFuture},
    turn::allowance,
};
use std::{
    future::poll_fn,
    io::{self, ErrorKind},
    pin::{Pin, pin},
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// The size of one read: four TLS records, and a full TCP segmentation unit.
const CHUNK: usize = 64 * 1024;

/// Moves bytes until both directions have ended and everything is delivered.
///
/// # Errors
/// [`Stopped`]; the caller then resets both legs.
pub async fn both<C, D>(
    client: &mut C,
    destination: &mut D,
    terms: Terms<'_>,
) -> Result<(), Stopped>
where
    C: PumpLeg + AsyncRead + AsyncWrite,
    D: PumpLeg + AsyncRead + AsyncWrite,
{
    let mut up = SealedDirection::new(terms.throttle, &terms.moved.up);
    let mut down = SealedDirection::new(terms.throttle, &terms.moved.down);
    let mut watch = LivenessWatch::new(terms);
    let mut left = None;
    loop {
        let step = poll_fn(|cx| {
            let up = match up.poll(cx, client, destination) {
                // The bytes that the destination sent before it closed its leg must still be read.
                Poll::Ready(Err(why @ Stopped::Broken(_))) if up.next != NextStep::Read => {
                    up.next = NextStep::Ended;
                    down.is_cut = true;
                    left = Some(why);
                    Poll::Ready(())
                }
                done => done?,
            };
            let down = match down.poll(cx, destination, client) {
                // Everything that the destination has sent is written to the client.
                Poll::Ready(Err(why @ Stopped::Broken(_)))
                    if down.next == NextStep::Read || down.is_cut =>
                {
                    left = left.take().or(Some(why));
                    return Poll::Ready(Ok::<_, Stopped>(()));
                }
                done => done?,
            };
            if up.is_ready() && down.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
        });
        tokio::select! {
            done = step => break done?,
            () = watch.tick() => watch.check(client.tcp(), destination.tcp(), PumpState {
                half_closed: up.has_ended() || down.has_ended(),
                throttled: up.paying.is_some() || down.paying.is_some(),
            })?,
        }
    }
    match left {
        None => watch.delivered(client.tcp(), destination.tcp()).await,
        // The client has not received everything yet; a reset now would discard it.
        Some(why) => watch.delivered(client.tcp(), None).await.and(Err(why)),
    }
}

/// The next step of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    /// Read until the buffer is full or nothing more has arrived.
    Read,
    /// Write the buffer, and then pass on the end if the sender has ended.
    Write { ended: bool },
    /// Make the receiver's leg send what it has buffered.
    Flush,
    /// End the receiver's direction.
    End,
    /// Nothing is left to do.
    Ended,
}

/// One direction. It has a buffer only while it holds bytes.
struct SealedDirection<'a> {
    next: NextStep,
    buffer: Vec<u8>,
    given: usize,
    /// The error of a read, which is reported once the bytes read before are written.
    failed: Option<io::Error>,
    /// Writing to the sender's leg has failed in the other direction, so its end may be a reset.
    is_cut: bool,
    throttle: Option<&'a dyn Throttle>,
    moved: &'a AtomicU64,
    paying: Option<ThrottleFuture<'a>>,
}

impl<'a> SealedDirection<'a> {
    fn new(throttle: Option<&'a dyn Throttle>, moved: &'a AtomicU64) -> Self {
        Self {
            next: NextStep::Read,
            buffer: Vec::new(),
            given: 0,
            failed: None,
            is_cut: false,
            throttle,
            moved,
            paying: None,
        }
    }

    fn has_ended(&self) -> bool {
        self.next == NextStep::Ended
    }

    /// Moves the bytes that can be moved, one turn at most. Ready when the direction has ended.
    fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<Result<(), Stopped>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut left = allowance(self.throttle);
        while !self.has_ended() {
            ready!(self.poll_pay(cx))?;
            let given = ready!(self.poll_step(cx, from, to)).map_err(Stopped::Broken)?;
            left = left.saturating_sub(given);
            if left == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_pay(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stopped>> {
        if let Some(paying) = &mut self.paying {
            ready!(paying.as_mut().poll(cx))?;
            self.paying = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Does one step. Returns the number of bytes written to the receiver.
    fn poll_step<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<io::Result<usize>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        match self.next {
            NextStep::Read => self.next = ready!(self.poll_read(cx, from))?,
            NextStep::Write { ended } => return self.poll_write(cx, to, ended),
            NextStep::Flush => {
                ready!(Pin::new(to).poll_flush(cx))?;
                self.next = NextStep::Read;
            }
            NextStep::End if self.is_cut => {
                return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
            }
            NextStep::End => {
                ready!(Pin::new(to).poll_shutdown(cx))?;
                self.next = NextStep::Ended;
            }
            NextStep::Ended => {}
        }
        Poll::Ready(Ok(0))
    }

    fn poll_read<R>(&mut self, cx: &mut Context<'_>, from: &mut R) -> Poll<io::Result<NextStep>>
    where
        R: AsyncRead + Unpin,
    {
        if let Some(why) = self.failed.take() {
            return Poll::Ready(Err(why));
        }
        self.buffer.reserve_exact(CHUNK);
        while self.buffer.len() < CHUNK {
            match pin!(from.read_buf(&mut self.buffer)).poll(cx) {
                Poll::Ready(Err(why)) if self.buffer.is_empty() => return Poll::Ready(Err(why)),
                Poll::Ready(Err(why)) => {
                    self.failed = Some(why);
                    break;
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(NextStep::Write { ended: true })),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending if self.buffer.is_empty() => {
                    self.buffer = Vec::new();
                    return Poll::Pending;
                }
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(NextStep::Write { ended: false }))
    }

    fn poll_write<W>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut W,
        ended: bool,
    ) -> Poll<io::Result<usize>>
    where
        W: AsyncWrite + Unpin,
    {
        let rest = self.buffer.get(self.given..).unwrap_or_default();
        if rest.is_empty() {
            self.given = 0;
            self.buffer.clear();
            self.next = if ended { NextStep::End } else { NextStep::Flush };
            return Poll::Ready(Ok(0));
        }
        let given = ready!(Pin::new(to).poll_write(cx, rest))?;
        if given == 0 {
            return Poll::Ready(Err(ErrorKind::WriteZero.into()));
        }
        self.given += given;
        self.moved.fetch_add(given as u64, Ordering::Relaxed);
        self.paying = self.throttle.map(|throttle| throttle.take(given));
        Poll::Ready(Ok(given))
    }
}
