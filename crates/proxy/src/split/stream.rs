//! The content of a split object on its way to the program, in order.

use super::super::{body::BodyError, record::Record};
use bytes::Bytes;
use hyper::{body::Frame, header::HeaderValue};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};
use thalweg_get::Output;
use tokio::sync::{mpsc, watch};

/// The writer's end of a stream to the program.
pub(super) struct Pipe {
    pub(super) pieces: mpsc::Sender<Bytes>,
    /// The tag of the wanted version.
    pub(super) tag: HeaderValue,
    /// Whether the object comes from another URL than the requested one.
    pub(super) elsewhere: Arc<AtomicBool>,
}

impl Output for Pipe {
    /// Fails if the object's tag is not the expected one, because a server may ignore `If-Match` or redirect range
    /// requests.
    fn begins(&self, tag: Option<&str>) -> io::Result<()> {
        let same = tag.is_some_and(|tag| tag.as_bytes() == self.tag.as_bytes());
        match same && !self.elsewhere.load(Relaxed) {
            true => Ok(()),
            false => Err(io::Error::other("the version differs from that of the answer's header")),
        }
    }

    fn write(&self, data: &[u8]) -> io::Result<()> {
        let sent = self.pieces.blocking_send(Bytes::copy_from_slice(data));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// The content, in order. Dropping it before its end stops the fetch.
pub struct SplitBody {
    pub(super) length: u64,
    pub(super) got: u64,
    pub(super) waiting: Option<Bytes>,
    pub(super) came: mpsc::Receiver<Bytes>,
    pub(super) record: Arc<Record>,
    pub(super) _end: FetchStopper,
}

/// Stops the fetch when it is dropped.
pub(super) struct FetchStopper(pub(super) watch::Sender<bool>);

impl Drop for FetchStopper {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl SplitBody {
    /// Whether all bytes were passed on.
    pub fn is_over(&self) -> bool {
        self.got >= self.length
    }

    /// Bytes still to come.
    pub fn left(&self) -> u64 {
        self.length - self.got.min(self.length)
    }

    /// Polls for the next piece of the content.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_over() {
            return Poll::Ready(None);
        }
        let piece = match self.waiting.take() {
            Some(piece) => Some(piece),
            None => ready!(self.came.poll_recv(cx)),
        };
        let (got, length) = (self.got, self.length);
        // More bytes than promised are an error.
        let Some(piece) = piece.filter(|piece| piece.len() as u64 <= length - got) else {
            return Poll::Ready(Some(Err(BodyError::Short { got, length })));
        };
        self.got += piece.len() as u64;
        self.record.down.fetch_add(piece.len() as u64, Relaxed);
        self.record.complete.store(self.is_over(), Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}
