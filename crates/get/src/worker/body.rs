//! Reads bodies of answers piece by piece.

use super::super::{PathError, http::Connection};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    Response,
    body::{Body as _, Incoming},
    http::response::Parts,
};
use std::{collections::VecDeque, time::Duration};
use tokio::{sync::oneshot, time::timeout};

/// The most bytes after the last wanted byte that are read and discarded to keep the connection: a closing boundary,
/// the page of a 416.
pub(super) const MAX_TAIL: usize = 64 << 10;

/// An answer's body and its connection.
pub(crate) struct Body {
    /// The bytes that were already read.
    pub(super) first: Option<Bytes>,
    pub(super) incoming: Incoming,
    pub(super) connection: Connection,
}

impl Body {
    /// The next bytes; `None` at the end that the framing marks.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, PathError> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => next_bytes(&mut self.incoming).await,
        }
    }

    /// Returns the connection if the body is at its end.
    pub(crate) async fn leave(mut self) -> Option<Connection> {
        // The end is already there, unless the body is longer than stated.
        let end = timeout(Duration::from_millis(100), next_bytes(&mut self.incoming)).await;
        matches!(end, Ok(Ok(None))).then_some(self.connection)
    }
}

/// An answer. Some bytes of its body may have been read.
pub(super) struct HttpAnswer {
    pub(super) head: Parts,
    pub(super) body: Incoming,
    held: VecDeque<Bytes>,
    /// Whether its length is known, so that it cannot be longer.
    framed: bool,
}

impl HttpAnswer {
    pub(super) fn new(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self::from_parts(head, body)
    }

    /// Creates an answer of whose body nothing was read.
    pub(super) fn from_parts(head: Parts, body: Incoming) -> Self {
        Self { framed: body.size_hint().exact().is_some(), head, body, held: VecDeque::new() }
    }

    /// Reads its body until its turn comes, up to `most` bytes and the rest of a piece.
    pub(super) async fn read_ahead(
        &mut self,
        mut turn: oneshot::Receiver<()>,
        most: usize,
    ) -> Result<(), PathError> {
        let mut read = 0;
        while read < most {
            let data = tokio::select! {
                biased;
                _ = &mut turn => return Ok(()),
                data = next_bytes(&mut self.body) => data?,
            };
            let Some(data) = data else { break };
            read += data.len();
            self.held.push_back(data);
        }
        Ok(())
    }
}

/// Reads the bytes of a range as they arrive.
pub(super) struct Stream {
    held: VecDeque<Bytes>,
    body: Incoming,
    /// Bytes that were read and not returned yet.
    ready: Option<Bytes>,
    /// The position of the next byte.
    at: u64,
    /// The end of the range.
    end: u64,
    framed: bool,
}

impl Stream {
    /// Creates the reader of the range from `at` to `end`.
    pub(super) fn new(answered: HttpAnswer, at: u64, end: u64) -> Self {
        let HttpAnswer { held, body, framed, .. } = answered;
        Self { held, body, ready: None, at, end, framed }
    }

    /// The next bytes and their position; `None` at the end that the framing marks. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<(u64, Bytes)>, PathError> {
        if self.ready.is_none() {
            self.ready = match self.held.pop_front() {
                Some(data) => Some(data),
                None => next_bytes(&mut self.body).await?,
            };
        }
        let Some(data) = &self.ready else { return Ok(None) };
        let reached = self.at + data.len() as u64;
        if reached > self.end {
            return Err(PathError::TooLong);
        }
        // A chunked answer may be longer than the range; then its last piece must not be used.
        let may_go_on = reached == self.end && !self.framed;
        if may_go_on && (!self.held.is_empty() || next_bytes(&mut self.body).await?.is_some()) {
            return Err(PathError::TooLong);
        }
        let at = std::mem::replace(&mut self.at, reached);
        Ok(self.ready.take().map(|data| (at, data)))
    }

    /// Returns the rest of the body.
    pub(super) fn into_body(self) -> Incoming {
        self.body
    }
}

/// The next bytes of a body; `None` at its end. Trailers are skipped.
pub(super) async fn next_bytes(body: &mut Incoming) -> Result<Option<Bytes>, PathError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(PathError::http)?.into_data()
            && !data.is_empty()
        {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads and discards the rest of a body. Returns false if it is too long.
pub(super) async fn drain(mut body: Incoming) -> Result<bool, PathError> {
    let mut read = 0;
    while let Some(data) = next_bytes(&mut body).await? {
        read += data.len();
        if read > MAX_TAIL {
            return Ok(false);
        }
    }
    Ok(true)
}
