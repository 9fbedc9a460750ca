//! Repairs texts that users and servers write for URLs, so that they conform to RFC 3986. Pure.
//!
//! Locations, lists and Metalinks contain spaces, raw UTF-8 or Latin-1, brackets and lone percent signs (RFC 9110
//! §10.2.2 lets recipients repair a Location; RFC 3987 §3.1 maps IRIs). Text that the grammar allows is kept byte for
//! byte; everything else is percent-encoded, octet by octet, and host names become ASCII (IDNA, UTS #46).

use idna::{AsciiDenyList, domain_to_ascii_cow};
use std::fmt::Write as _;

/// The characters of a path besides letters and digits (RFC 3986 §3.3).
const PATH: &[u8] = b"-._~!$&'()*+,;=:@/";

/// The characters of a query besides letters and digits (§3.4).
const QUERY: &[u8] = b"-._~!$&'()*+,;=:@/?";

/// The characters before a host besides letters and digits (§3.2.1).
const USER: &[u8] = b"-._~!$&'()*+,;=:";

/// Removes surrounding blanks, line ends and the fragment of `text`, and percent-encodes every octet that the grammar
/// does not allow. The result may still not be a URL.
pub(super) fn repaired(text: &[u8]) -> String {
    let text: Vec<u8> =
        text.iter().copied().filter(|b| !matches!(b, b'\t' | b'\r' | b'\n')).collect();
    let text = text.trim_ascii();
    let text = text.split(|b| *b == b'#').next().unwrap_or_default();
    let (scheme, rest) = text.split_at(scheme(text));
    let mut url = String::from_utf8_lossy(scheme).into_owned();
    let rest = match rest.strip_prefix(b"//") {
        Some(rest) => {
            let end = rest.iter().position(|b| b"/?".contains(b)).unwrap_or(rest.len());
            url.push_str("//");
            authority(&mut url, &rest[..end]);
            &rest[end..]
        }
        None => {
            // A colon in the first segment would end a scheme (§4.2).
            let first = rest.split(|b| b"/?".contains(b)).next().unwrap_or_default();
            if scheme.is_empty() && first.contains(&b':') {
                url.push_str("./");
            }
            rest
        }
    };
    let path = rest.iter().position(|b| *b == b'?').unwrap_or(rest.len());
    encode(&mut url, &rest[..path], PATH);
    encode(&mut url, &rest[path..], QUERY);
    url
}

/// The length of the scheme including its colon; 0 if there is none.
fn scheme(text: &[u8]) -> usize {
    let good = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
    let end = text.iter().position(|b| !good(b)).unwrap_or(text.len());
    let is_scheme =
        text.first().is_some_and(u8::is_ascii_alphabetic) && text.get(end) == Some(&b':');
    if is_scheme { end + 1 } else { 0 }
}

/// Appends the user, host and port.
fn authority(url: &mut String, text: &[u8]) {
    let host = text.iter().rposition(|b| *b == b'@').map_or(0, |at| at + 1);
    if let Some((_, user)) = text[..host].split_last() {
        encode(url, user, USER);
        url.push('@');
    }
    let host = &text[host..];
    let colon = host.iter().rposition(|b| *b == b':').filter(|_| !host.starts_with(b"["));
    let (name, port) = host.split_at(colon.unwrap_or(host.len()));
    url.push_str(&ascii_name(name).unwrap_or_else(|| String::from_utf8_lossy(name).into_owned()));
    url.push_str(&String::from_utf8_lossy(port));
}

/// A host's name in ASCII; `None` if it is ASCII already, or not a valid name.
pub(super) fn ascii_name(name: &[u8]) -> Option<String> {
    if name.is_ascii() && !name.contains(&b'%') {
        return None;
    }
    let decoded = decode(name);
    let ascii = domain_to_ascii_cow(&decoded, AsciiDenyList::URL).ok()?;
    (!ascii.is_empty()).then(|| ascii.into_owned())
}

/// Decodes percent codes.
fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let code = code(rest);
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { &rest[3..] } else { tail };
    }
    out
}

/// The octet of the percent code at the start of `text`.
fn code(text: &[u8]) -> Option<u8> {
    let [b'%', a, b, ..] = text else { return None };
    let digit = |b: u8| char::from(b).to_digit(16);
    u8::try_from(digit(*a)? * 16 + digit(*b)?).ok()
}

/// Appends `text`. Octets other than letters, digits, percent codes and `allowed` are encoded.
fn encode(url: &mut String, text: &[u8], allowed: &[u8]) {
    for (i, b) in text.iter().enumerate() {
        let plain = b.is_ascii_alphanumeric() || allowed.contains(b) || code(&text[i..]).is_some();
        match plain {
            true => url.push(char::from(*b)),
            // Writing to a string does not fail.
            false => _ = write!(url, "%{b:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn characters_that_the_grammar_does_not_allow_are_encoded() {
        for (text, url) in [
            (&b"/f/a b.bin"[..], "/f/a%20b.bin"),
            ("/f/caf\u{e9}.bin".as_bytes(), "/f/caf%C3%A9.bin"),
            (b"/f/caf\xe9.bin", "/f/caf%E9.bin"),
            (b"/f/x.bin?k[]=1|2", "/f/x.bin?k%5B%5D=1%7C2"),
            (b"/f/100%.bin", "/f/100%25.bin"),
            (b"/f/100%zz%41.bin", "/f/100%25zz%41.bin"),
            (b"\" `<>\\^{}", "%22%20%60%3C%3E%5C%5E%7B%7D"),
            (b" http://a/b\tc\r\n#d e", "http://a/bc"),
            (b"x.bin?q=a?b/c", "x.bin?q=a?b/c"),
            (b"a b:c/d", "./a%20b:c/d"),
            (b"http://u s:p\"w@h:81/x", "http://u%20s:p%22w@h:81/x"),
            (b"//[::1]:81/a b", "//[::1]:81/a%20b"),
            (
                "https://b\u{fc}cher.example/\u{fc}?\u{fc}".as_bytes(),
                "https://xn--bcher-kva.example/%C3%BC?%C3%BC",
            ),
            (b"https://B%C3%BCcher.example:8/", "https://xn--bcher-kva.example:8/"),
            ("http://\u{4f8b}\u{3002}test/".as_bytes(), "http://xn--fsq.test/"),
            (b"", ""),
        ] {
            assert_eq!(repaired(text), url);
        }
    }

    proptest! {
        /// For any bytes: repairing the result again does not change it.
        #[test]
        fn repairing_is_idempotent(text in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut reference = b"/".to_vec();
            reference.extend(text);
            let once = repaired(&reference);
            prop_assert_eq!(repaired(once.as_bytes()), once);
        }

        #[test]
        fn a_valid_url_is_not_changed(path in "(/([a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2}){0,9}){1,4}", query in "[a-z=&/?:@]{0,9}") {
            let url = format!("https://www.example:81{path}?{query}");
            prop_assert_eq!(repaired(url.as_bytes()), url);
        }
    }
}
