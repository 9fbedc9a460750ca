//! Header fields that belong to one hop, and those that a proxy adds (RFC 9110 §7.6).

use hyper::{
    HeaderMap, Version,
    header::{self, HeaderName, HeaderValue},
};

/// Fields that belong to one hop, whether `Connection` names them or not (RFC 9110 §7.6.1).
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Fields that are kept even if `Connection` names them, because removing them would change the meaning of the message.
const END_TO_END: [HeaderName; 4] =
    [header::HOST, header::CONTENT_LENGTH, header::CONTENT_TYPE, header::AUTHORIZATION];

/// Removes the fields that belong to this hop, and those that `Connection` names.
pub fn strip_hop_by_hop(fields: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(fields, &header::CONNECTION)
        .filter_map(|token| token.parse().ok())
        .filter(|name| !END_TO_END.contains(name))
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        fields.remove(name);
    }
}

/// The members of a field that is a list of tokens, over all its lines.
pub fn tokens<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = fields.get_all(name).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// Whether a list of tokens contains this one, ignoring case.
pub fn has_token(fields: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(fields, name).any(|found| found.eq_ignore_ascii_case(token))
}

/// The protocol that a request asks to upgrade to, if any (RFC 9110 §7.8). HTTP/1.0 has no upgrades.
pub fn upgrade(fields: &HeaderMap, version: Version) -> Option<HeaderValue> {
    let asked = version >= Version::HTTP_11 && has_token(fields, &header::CONNECTION, "upgrade");
    asked.then(|| fields.get(header::UPGRADE).cloned()).flatten()
}

/// Asks for the same upgrade on the next hop.
pub fn set_upgrade(fields: &mut HeaderMap, protocol: HeaderValue) {
    fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(header::UPGRADE, protocol);
}

/// The transfer codings, if there are others than `chunked`, which this proxy cannot remove (RFC 9112 §6.1).
pub fn unsupported_coding(fields: &HeaderMap) -> Option<String> {
    let codings: Vec<&str> = tokens(fields, &header::TRANSFER_ENCODING).collect();
    match codings[..] {
        [] => None,
        [one] if one.eq_ignore_ascii_case("chunked") => None,
        _ => Some(codings.join(", ")),
    }
}

/// Replaces a length that is repeated, "5, 5" (RFC 9110 §8.6), by a single one, so that no later recipient reads it
/// differently. hyper has already refused lengths that differ.
pub fn merge_lengths(fields: &mut HeaderMap) {
    let mut lengths = tokens(fields, &header::CONTENT_LENGTH);
    let Some(first) = lengths.next().and_then(|first| first.parse::<u64>().ok()) else { return };
    if lengths.next().is_some() {
        drop(lengths);
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from(first));
    }
}

/// Authentication schemes that authenticate the connection instead of the request (RFC 4559, section 6).
const CONNECTION_SCHEMES: [&str; 4] = ["ntlm", "negotiate", "kerberos", "nego2"];

/// The fields in which servers offer these schemes and clients use them.
const AUTHENTICATION_FIELDS: [HeaderName; 4] = [
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    header::WWW_AUTHENTICATE,
    header::PROXY_AUTHENTICATE,
];

/// Whether a request or answer is part of an authentication that holds for the whole connection.
pub fn authenticates_connection(fields: &HeaderMap) -> bool {
    let is_such = |item: &[u8]| {
        let scheme = item.trim_ascii_start();
        let end = scheme.iter().position(u8::is_ascii_whitespace).unwrap_or(scheme.len());
        CONNECTION_SCHEMES.iter().any(|known| scheme[..end].eq_ignore_ascii_case(known.as_bytes()))
    };
    let values = AUTHENTICATION_FIELDS.iter().flat_map(|name| fields.get_all(name));
    let mut items = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    // IIS sends this field for a connection that stays authenticated.
    items.any(is_such) || fields.contains_key("persistent-auth")
}

/// Adds our name to `Via` (RFC 9110 §7.6.3), with the version of the message that arrived.
pub fn add_via(fields: &mut HeaderMap, version: Version, name: &str) {
    let version = match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    };
    // Both are visible ASCII.
    if let Ok(value) = HeaderValue::from_str(&format!("{version} {name}")) {
        fields.append(header::VIA, value);
    }
}

/// Whether the message has passed this proxy before.
pub fn has_passed(fields: &HeaderMap, name: &str) -> bool {
    tokens(fields, &header::VIA).any(|via| via.split_whitespace().nth(1) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        fields
    }

    #[test]
    fn fields_that_connection_names_are_removed_except_end_to_end_ones() {
        let mut all = fields(&[
            ("connection", "close, X-Hop"),
            ("connection", "host, authorization"),
            ("host", "a"),
            ("authorization", "Basic eA=="),
            ("x-hop", "1"),
            ("x-end", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eA=="),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("trailer", "x-sum"),
        ]);
        strip_hop_by_hop(&mut all);
        let mut left: Vec<_> = all.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["authorization", "host", "trailer", "x-end"]);
    }

    #[test]
    fn connection_authentication_is_recognised() {
        for (name, value) in [
            ("authorization", "NTLM TlRMTVNTUAAD"),
            ("authorization", "negotiate  YII="),
            ("www-authenticate", "NTLM"),
            ("www-authenticate", "Basic realm=\"a, b\", Negotiate"),
            ("proxy-authenticate", "Kerberos"),
            ("persistent-auth", "true"),
        ] {
            assert!(authenticates_connection(&fields(&[(name, value)])), "{name}: {value}");
        }
        for (name, value) in [
            ("authorization", "Basic TlRMTQ=="),
            ("authorization", "Bearer ntlm"),
            ("www-authenticate", "Digest realm=\"NTLM\""),
            ("www-authenticate", ""),
            ("x-scheme", "NTLM"),
        ] {
            assert!(!authenticates_connection(&fields(&[(name, value)])), "{name}: {value}");
        }
    }

    #[test]
    fn via_grows_and_shows_loops() {
        let mut all = fields(&[("via", "1.0 fred, 1.1 p.example (x)")]);
        assert!(!has_passed(&all, "thalweg-1"));
        add_via(&mut all, Version::HTTP_10, "thalweg-1");
        let lines: Vec<_> = all.get_all("via").iter().map(|v| v.to_str().unwrap()).collect();
        assert_eq!(lines, ["1.0 fred, 1.1 p.example (x)", "1.0 thalweg-1"]);
        assert!(
            has_passed(&all, "thalweg-1") && has_passed(&all, "fred") && !has_passed(&all, "1.1")
        );
    }

    #[test]
    fn upgrades_and_codings_are_read() {
        let asks = fields(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(upgrade(&asks, Version::HTTP_11).unwrap(), "websocket");
        assert!(upgrade(&asks, Version::HTTP_10).is_none());
        assert!(upgrade(&fields(&[("upgrade", "websocket")]), Version::HTTP_11).is_none());
        assert_eq!(unsupported_coding(&fields(&[("transfer-encoding", "Chunked")])), None);
        let gzipped = fields(&[("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")]);
        assert_eq!(unsupported_coding(&gzipped).unwrap(), "gzip, chunked");
    }
}
