//! The pump of two legs of which one or both are sealed.
//!
//! One task polls both directions, since TLS has one state for both.

use super::{
    Leg, Stopped, Terms,
    throttle::{Taken, Throttle},
    turn::allowance,
    watch::{Holding, Watch},
};
use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// What is read at once: four TLS records, and a full TCP segmentation unit.
const CHUNK: usize = 64 * 1024;

/// Moves bytes until both directions have ended and all is delivered.
///
/// # Errors
/// [`Stopped`]; the caller then resets both legs.
pub async fn both<C, D>(
    client: &mut C,
    destination: &mut D,
    terms: Terms<'_>,
) -> Result<(), Stopped>
where
    C: Leg + AsyncRead + AsyncWrite,
    D: Leg + AsyncRead + AsyncWrite,
{
    let mut up = Direction::new(terms.throttle, &terms.moved.up);
    let mut down = Direction::new(terms.throttle, &terms.moved.down);
    let mut watch = Watch::new(terms);
    loop {
        let step = poll_fn(|cx| {
            let up = up.poll(cx, client, destination)?;
            let down = down.poll(cx, destination, client)?;
            if up.is_ready() && down.is_ready() {
                Poll::Ready(Ok::<_, Stopped>(()))
            } else {
                Poll::Pending
            }
        });
        tokio::select! {
            done = step => break done?,
            () = watch.tick() => watch.check(client.tcp(), destination.tcp(), Holding {
                half_closed: up.has_ended() || down.has_ended(),
                throttled: up.paying.is_some() || down.paying.is_some(),
            })?,
        }
    }
    watch.delivered(client.tcp(), destination.tcp()).await
}

/// What a direction does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Take from the sender until the buffer is full or nothing more has come.
    Read,
    /// Give what was taken; then the end, if the sender has ended.
    Write { ended: bool },
    /// Make the receiver's leg send what it has buffered.
    Flush,
    /// End the receiver's direction.
    End,
    /// Nothing more.
    Ended,
}

/// One direction; it has a buffer only while bytes are in it.
struct Direction<'a> {
    next: Next,
    buffer: Vec<u8>,
    given: usize,
    throttle: Option<&'a dyn Throttle>,
    moved: &'a AtomicU64,
    paying: Option<Taken<'a>>,
}

impl<'a> Direction<'a> {
    fn new(throttle: Option<&'a dyn Throttle>, moved: &'a AtomicU64) -> Self {
        let (buffer, paying) = (Vec::new(), None);
        Self { next: Next::Read, buffer, given: 0, throttle, moved, paying }
    }

    fn has_ended(&self) -> bool {
        self.next == Next::Ended
    }

    /// Moves what can be moved, one turn at most; ready when the direction has ended.
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

    /// One step; how many bytes it gave to the receiver.
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
            Next::Read => self.next = ready!(self.poll_read(cx, from))?,
            Next::Write { ended } => return self.poll_write(cx, to, ended),
            Next::Flush => {
                ready!(Pin::new(to).poll_flush(cx))?;
                self.next = Next::Read;
            }
            Next::End => {
                ready!(Pin::new(to).poll_shutdown(cx))?;
                self.next = Next::Ended;
            }
            Next::Ended => {}
        }
        Poll::Ready(Ok(0))
    }

    fn poll_read<R>(&mut self, cx: &mut Context<'_>, from: &mut R) -> Poll<io::Result<Next>>
    where
        R: AsyncRead + Unpin,
    {
        self.buffer.reserve_exact(CHUNK);
        while self.buffer.len() < CHUNK {
            let read = pin!(from.read_buf(&mut self.buffer)).poll(cx)?;
            match read {
                Poll::Ready(0) => return Poll::Ready(Ok(Next::Write { ended: true })),
                Poll::Ready(_) => {}
                Poll::Pending if self.buffer.is_empty() => {
                    self.buffer = Vec::new();
                    return Poll::Pending;
                }
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(Next::Write { ended: false }))
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
            self.next = if ended { Next::End } else { Next::Flush };
            return Poll::Ready(Ok(0));
        }
        let given = ready!(Pin::new(to).poll_write(cx, rest))?;
        if given == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.given += given;
        self.moved.fetch_add(given as u64, Ordering::Relaxed);
        self.paying = self.throttle.map(|throttle| throttle.take(given));
        Poll::Ready(Ok(given))
    }
}
