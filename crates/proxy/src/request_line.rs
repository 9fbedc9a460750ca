//! Outgoing requests: puts the target into the request line that hyper writes to an origin, byte for byte.
//! (`request_scanner` does the reverse for incoming ones.)
//!
//! `http::Uri` cannot hold a target with odd bytes (see `request_scanner`). So hyper writes a placeholder, and
//! [`CountedStream`](super::counted_stream::CountedStream) below hyper replaces it by the target. Each origin
//! connection has its own placeholder, which is random and never sent, so that no program can place it in content.

use bytes::Bytes;
use hyper::{Request, Uri};
use parking_lot::Mutex;
use std::sync::Arc;

/// A request's target in origin form, kept in the request's [`http::Extensions`](hyper::http::Extensions).
#[derive(Clone, Debug)]
pub struct OriginForm(pub Bytes);

/// The placeholder of an origin connection, and the next target; cheap to clone.
#[derive(Clone, Debug)]
pub struct RequestLine {
    placeholder: Arc<str>,
    /// The target of the request that is about to be written.
    target: Arc<Mutex<Option<Bytes>>>,
}

impl RequestLine {
    /// Creates the placeholder of a new origin connection.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let placeholder = format!("/{:032x}", u128::from_ne_bytes(random)).into();
        Ok(Self { placeholder, target: Arc::default() })
    }

    /// Prepares the connection's next request to be written with its own target. A request without an [`OriginForm`] is
    /// written unchanged.
    pub fn set<B>(&self, request: &mut Request<B>) {
        let target = request.extensions().get::<OriginForm>().map(|form| form.0.clone());
        if target.is_some() {
            // It parses: letters, digits and a slash.
            *request.uri_mut() = self.placeholder.parse().unwrap_or_else(|_| Uri::default());
        }
        *self.target.lock() = target;
    }

    /// Whether the next request has a target of its own.
    pub fn is_set(&self) -> bool {
        self.target.lock().is_some()
    }

    /// If the first piece holds the placeholder, returns what to write instead: the number of bytes of `pieces` that
    /// are replaced, and the new bytes. Replaces only as many pieces as keep the new bytes within `most`.
    pub fn rewrite(&self, pieces: &[&[u8]], most: usize) -> Option<(usize, Vec<u8>)> {
        let mut target = self.target.lock();
        target.as_ref()?;
        let first = pieces.first()?;
        let holder = self.placeholder.as_bytes();
        let at = first.windows(holder.len()).position(|window| window == holder)?;
        let target = target.take()?;
        let mut written = [&first[..at], &target[..], &first[at + holder.len()..]].concat();
        let mut taken = first.len();
        for piece in &pieces[1..] {
            if written.len() + piece.len() > most {
                break;
            }
            written.extend_from_slice(piece);
            taken += piece.len();
        }
        Some((taken, written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_replaces_the_placeholder_once() {
        let line = RequestLine::new().unwrap();
        let mut request = Request::new(());
        request.extensions_mut().insert(OriginForm(Bytes::from_static(b"/<\xe9>")));
        line.set(&mut request);
        let head = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", request.uri());
        assert_eq!(line.rewrite(&[b"the end of another content"], 100), None);
        let (taken, written) = line.rewrite(&[head.as_bytes(), b"body", b"too long"], 40).unwrap();
        assert_eq!(written, b"GET /<\xe9> HTTP/1.1\r\nHost: a\r\n\r\nbody");
        assert_eq!(taken, head.len() + 4);
        assert_eq!(line.rewrite(&[head.as_bytes()], 100), None, "once");
    }

    #[test]
    fn a_request_without_a_target_is_left_alone() {
        let line = RequestLine::new().unwrap();
        let mut request = Request::builder().uri("/x").body(()).unwrap();
        line.set(&mut request);
        assert_eq!(request.uri(), "/x");
        assert_eq!(line.rewrite(&[b"GET /x HTTP/1.1\r\n"], 100), None);
    }
}
