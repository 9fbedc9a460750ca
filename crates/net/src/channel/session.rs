//! TLS over a connection. It reads record by record, so that an open leg can leave TLS at an agreed byte (decision
//! 0025).

use super::{incoming::Incoming, queue::Queue};
use rustls::Connection;
use std::{
    future::poll_fn,
    io::{self, BufRead as _, IoSlice, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite};

/// A TLS session and the connection beneath.
#[derive(Debug)]
pub(super) struct Session<IO> {
    pub io: IO,
    pub tls: Connection,
    pub incoming: Incoming,
}

/// Adapts the connection to `std::io::Write`: a pending write is `WouldBlock`.
struct Blocking<'a, 'b, IO> {
    io: &'a mut IO,
    cx: &'a mut Context<'b>,
}

/// A reader that always returns `WouldBlock`, unlike [`io::empty`], which is at its end.
struct NoInput;

impl io::Read for NoInput {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

fn or_would_block<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl<IO: AsyncWrite + Unpin> Write for Blocking<'_, '_, IO> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.io).poll_write(self.cx, buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.io).poll_write_vectored(self.cx, bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        or_would_block(Pin::new(&mut *self.io).poll_flush(self.cx))
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Session<IO> {
    /// Does the handshake and sends all output, or an alert if it fails. With a queue, the key work takes turns in it.
    pub async fn handshake(&mut self, queue: Option<&Queue<'_, IO>>) -> io::Result<()> {
        let done = self.run_handshake(queue).await;
        if done.is_err() {
            // The error of the handshake matters more than a failure to send the alert.
            let _ = poll_fn(|cx| self.poll_send(cx)).await;
        }
        self.incoming.grow();
        done
    }

    async fn run_handshake(&mut self, queue: Option<&Queue<'_, IO>>) -> io::Result<()> {
        while self.tls.is_handshaking() {
            poll_fn(|cx| self.poll_send(cx)).await?;
            if self.tls.is_handshaking() {
                let length = poll_fn(|cx| self.poll_whole(cx)).await?;
                // The record may contain a signature, which is verified in `take_record`. A client that has shut
                // down its direction may have sent its last flight and a request before.
                let turn = Queue::turn(queue).await;
                self.take_record(length)?;
                drop(turn);
            }
        }
        poll_fn(|cx| self.poll_send(cx)).await
    }
}

impl<IO: AsyncRead + Unpin> Session<IO> {
    /// Hands one record to TLS.
    ///
    /// # Errors
    /// `UnexpectedEof` if the connection ends without `close_notify`; TLS's errors as `InvalidData`.
    fn poll_record(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let length = ready!(self.poll_whole(cx))?;
        Poll::Ready(self.take_record(length))
    }

    /// Reads until a whole record has arrived. Returns its length.
    fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            if let Some(length) = self.incoming.record()? {
                return Poll::Ready(Ok(length));
            }
            let filled = self.incoming.poll_fill(&mut self.io, cx);
            if filled.is_pending() {
                self.trim();
            }
            if ready!(filled)? == 0 {
                return Poll::Ready(Err(cut_short()));
            }
        }
    }

    fn take_record(&mut self, length: usize) -> io::Result<()> {
        let mut record = &self.incoming.held()[..length];
        while !record.is_empty() && self.tls.read_tls(&mut record)? > 0 {}
        self.incoming.consume(length);
        self.tls.process_new_packets().map(drop).map_err(super::error::from_tls)
    }

    /// Makes TLS shrink its copy of the bytes, which grows to a record's size after large records.
    ///
    /// TLS shrinks it only when it is about to read.
    fn trim(&mut self) {
        // There is nothing to read, so this fails as intended.
        let _ = self.tls.read_tls(&mut NoInput);
    }

    /// The received plaintext; empty at `close_notify`. Never reads beyond the record that it is from.
    pub fn poll_plaintext(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        loop {
            match self.tls.reader().into_first_chunk() {
                // Bytes behind the agreed last byte are not TLS any more, so a further record is read only on request.
                Ok(_) => return Poll::Ready(self.tls.reader().into_first_chunk()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
            ready!(self.poll_record(cx))?;
        }
    }

    /// Removes `n` bytes of plaintext.
    pub fn consume(&mut self, n: usize) {
        self.tls.reader().consume(n);
    }
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended without a TLS close_notify")
}

impl<IO: AsyncWrite + Unpin> Session<IO> {
    /// Sends TLS's pending output.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Blocking { io: &mut self.io, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }
}
