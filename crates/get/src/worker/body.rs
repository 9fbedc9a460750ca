//! Bodies of answers, piece by piece.

use super::super::{PathError, http::Connection};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::time::timeout;

/// What follows the last byte that is wanted is read away up to this, so that
/// the connection can go on: a closing boundary, the page of a 416.
pub(super) const MAX_TAIL: usize = 64 << 10;

/// An answer's body, with the connection that it comes over.
pub(crate) struct Body {
    /// What was read of it already.
    pub(super) first: Option<Bytes>,
    pub(super) incoming: Incoming,
    pub(super) connection: Connection,
}

impl Body {
    /// The next bytes; `None` at the end that the server marked.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, PathError> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => next_bytes(&mut self.incoming).await,
        }
    }

    /// The connection, once all of a body was read whose length is known.
    pub(crate) async fn leave(mut self) -> Option<Connection> {
        // Its end is there, or it is not what it said.
        let end = timeout(Duration::from_millis(100), next_bytes(&mut self.incoming)).await;
        matches!(end, Ok(Ok(None))).then_some(self.connection)
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

/// Reads the rest of a body away; false if there is too much of it.
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
