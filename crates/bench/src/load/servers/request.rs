//! Parses requests as a file server does. Pure.

use std::ops::Range;

/// The longest head that is read; a longer one ends the connection.
pub const HEAD_MAX: usize = 64 * 1024;

/// The head of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// `GET`, `HEAD` or another method.
    pub method: String,
    /// Path and query, with one character per byte.
    pub target: String,
    /// Fields with lowercase names.
    fields: Vec<(String, String)>,
}

impl Request {
    /// Parses a head without its final empty line; `None` if it is invalid.
    pub fn parse(head: &[u8]) -> Option<Self> {
        let text: String = head.iter().map(|byte| char::from(*byte)).collect();
        let mut lines = text.lines();
        let mut words = lines.next()?.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let field = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Some(Self { method, target, fields: lines.filter_map(field).collect() })
    }

    /// The first field of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether the request has a Range field of any form.
    pub fn is_ranged(&self) -> bool {
        self.field("range").is_some()
    }

    /// The requested range, clamped to a file of `length` bytes. `None` if there is no range, if there are several, or
    /// if its form is one that a server may ignore (RFC 9110 §14.2).
    pub fn range(&self, length: u64) -> Option<Range<u64>> {
        let (from, to) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        if from.is_empty() {
            return Some(length.saturating_sub(to.parse().ok()?)..length);
        }
        let end = if to.is_empty() { length } else { to.parse::<u64>().ok()?.checked_add(1)? };
        Some(from.parse().ok()?..end.min(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(range: &str) -> Option<Range<u64>> {
        let head = format!("GET /x HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n");
        Request::parse(head.as_bytes()).unwrap().range(100)
    }

    #[test]
    fn a_single_range_is_clamped_and_other_forms_are_ignored() {
        assert_eq!(asked("bytes=10-19"), Some(10..20));
        assert_eq!(asked("bytes=90-"), Some(90..100));
        assert_eq!(asked("bytes=-5"), Some(95..100));
        assert!(asked("bytes=200-300").is_some_and(|range| range.is_empty()));
        assert_eq!(asked("bytes=0-1,5-6"), None);
        assert_eq!(asked("lines=1-2"), None);
    }

    #[test]
    fn raw_bytes_of_a_target_are_preserved() {
        let request = Request::parse(b"GET /d\xe9p HTTP/1.1\r\nA: b\r\n").unwrap();
        assert_eq!(request.target, "/d\u{e9}p");
        assert_eq!(request.field("a"), Some("b"));
        assert!(Request::parse(b"x").is_none());
    }
}
