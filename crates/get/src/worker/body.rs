//! Bodies of answers, piece by piece.

use super::super::{PathError, http::Connection};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// What follows the last byte that is wanted is read away up to this, so that
/// the connection can go on: a closing boundary, the page of a 416.
pub(super) const MAX_TAIL: usize = 64 << 10;

/// An answer's body, with the connection that it comes over.
pub(crate) struct Body {
    pub(super) incoming: Incoming,
    pub(super) _connection: Connection,
}

impl Body {
    /// The next bytes; `None` at the end that the server marked.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, PathError> {
        next_bytes(&mut self.incoming).await
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
