//! Parses the parts of requests that a file server needs (RFC 9112, RFC 9110 §14).

use anyhow::{Context, bail};
use std::{
    io::{BufRead, BufReader, Read},
    net::TcpStream,
    ops::Range,
};

/// The longest head accepted, bytes.
const HEAD_MAX: u64 = 64 * 1024;

/// One request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpRequest {
    /// The method. Only `HEAD` is handled specially.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case, and values without surrounding whitespace.
    fields: Vec<(String, String)>,
}

impl HttpRequest {
    /// The first field with this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The requested ranges of a file of this length. `None` if there is no valid Range field; an empty list if no
    /// range can be satisfied.
    pub fn ranges(&self, length: u64) -> Option<Vec<Range<u64>>> {
        let list = self.field("range")?.strip_prefix("bytes=")?;
        let ranges: Option<Vec<Range<u64>>> = list.split(',').map(|r| range(r, length)).collect();
        Some(ranges?.into_iter().filter(|r| !r.is_empty()).collect())
    }
}

/// Parses `a-b`, `a-` or `-n` and clips it to the file; `None` if it is invalid.
fn range(text: &str, length: u64) -> Option<Range<u64>> {
    let (from, to) = text.trim().split_once('-')?;
    if from.is_empty() {
        return Some(length.saturating_sub(to.parse().ok()?)..length);
    }
    let end = if to.is_empty() { length } else { to.parse::<u64>().ok()?.checked_add(1)? };
    Some(from.parse().ok()?..end.min(length))
}

/// Reads the requests of one connection.
pub struct RequestReader(BufReader<TcpStream>);

impl RequestReader {
    /// Creates the reader of a connection.
    pub fn new(stream: TcpStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// Reads the next request; `None` if the client has closed the connection. Bodies are not supported.
    ///
    /// # Errors
    /// If the request is invalid or its head too long, or the connection breaks.
    pub fn next(&mut self) -> anyhow::Result<Option<HttpRequest>> {
        let mut head = self.0.by_ref().take(HEAD_MAX);
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_ascii_whitespace();
        let (method, target) =
            words.next().zip(words.next()).context("the first line is not a valid HTTP request")?;
        let mut request = HttpRequest {
            method: method.to_owned(),
            target: target.to_owned(),
            fields: Vec::new(),
        };
        loop {
            let mut line = String::new();
            if head.read_line(&mut line)? == 0 {
                bail!("the request head is too long or incomplete");
            }
            let Some((name, value)) = line.split_once(':') else { break };
            request.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Some(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(range: &str) -> Option<Vec<Range<u64>>> {
        let fields = vec![("range".to_owned(), range.to_owned())];
        HttpRequest { fields, ..HttpRequest::default() }.ranges(100)
    }

    #[test]
    fn ranges_are_clipped_to_the_file() {
        assert_eq!(asked("bytes=10-19, 90-200"), Some(vec![10..20, 90..100]));
        assert_eq!(asked("bytes=-5,95-"), Some(vec![95..100, 95..100]));
        assert_eq!(asked("bytes=100-"), Some(Vec::new()));
        assert_eq!(asked("lines=1-2"), None);
        assert_eq!(asked("bytes=b-a"), None);
        assert_eq!(HttpRequest::default().ranges(100), None);
    }
}
