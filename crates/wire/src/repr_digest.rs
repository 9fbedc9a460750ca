//! Reads the SHA-256 of a whole object from a server's `Repr-Digest` field (RFC 9530), or from the `Digest` field
//! (RFC 3230) that it replaced. Other algorithms are ignored.

use data_encoding::BASE64_NOPAD;

/// The SHA-256 in a `Repr-Digest` field, a dictionary of byte sequences (RFC 9530 §3, RFC 8941 §3.2); `None` if there
/// is none. If there are several, the last counts.
pub fn repr_digest(field: &str) -> Option<[u8; 32]> {
    members(field).filter(|(key, _)| *key == "sha-256").last().and_then(|(_, value)| {
        let sequence = value.split(';').next()?.trim_ascii();
        sha256(sequence.strip_prefix(':')?.strip_suffix(':')?)
    })
}

/// The SHA-256 in a `Digest` field (RFC 3230 §4.3.2); `None` if there is none, or if several differ.
pub fn digest(field: &str) -> Option<[u8; 32]> {
    let mut found = members(field)
        .filter(|(key, _)| key.eq_ignore_ascii_case("sha-256"))
        .map(|(_, value)| sha256(value));
    let first = found.next()??;
    found.all(|other| other == Some(first)).then_some(first)
}

/// The members of a list `key=value, …`. The relevant values contain no comma.
fn members(field: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = field.split(',').filter_map(|member| member.split_once('='));
    pairs.map(|(key, value)| (key.trim_ascii(), value.trim_ascii()))
}

/// Decodes base64 with or without padding (RFC 8941 §4.2.7).
fn sha256(text: &str) -> Option<[u8; 32]> {
    let text = text.strip_suffix('=').unwrap_or(text);
    BASE64_NOPAD.decode(text.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SHA-256 of `{"hello": "world"}` and a line feed (RFC 9530 §B.1).
    const TEXT: &str = "RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=";

    fn bytes() -> [u8; 32] {
        data_encoding::BASE64.decode(TEXT.as_bytes()).unwrap().try_into().unwrap()
    }

    #[test]
    fn a_digest_among_others_is_read() {
        let unpadded = TEXT.trim_end_matches('=');
        for field in [
            format!("sha-256=:{TEXT}:"),
            format!("sha-512=:AAAA:, sha-256=:{TEXT}:;x=1"),
            format!("sha-256=:AAAA:,sha-256=:{TEXT}:"),
            format!("sha-256=:{unpadded}:"),
        ] {
            assert_eq!(repr_digest(&field), Some(bytes()), "{field}");
        }
        for field in [format!("SHA-256={TEXT}"), format!("md5=AAAA==, sha-256={TEXT}, unixsum=3")] {
            assert_eq!(digest(&field), Some(bytes()), "{field}");
        }
    }

    #[test]
    fn malformed_fields_and_other_algorithms_are_ignored() {
        for field in [
            String::new(),
            "sha-256".to_owned(),
            "sha-256=::".to_owned(),
            format!("sha-256={TEXT}"),
            format!("SHA-256=:{TEXT}:"),
            format!("sha-256=:{TEXT}"),
            format!("sha-256=:{TEXT}=:"),
            format!("sha-256=:{}:", &TEXT[4..]),
            format!("sha-512=:{TEXT}:"),
        ] {
            assert_eq!(repr_digest(&field), None, "{field}");
        }
        let other = TEXT.replace('R', "S");
        assert_eq!(digest(&format!("sha-256={TEXT}, sha-256={other}")), None);
        assert_eq!(digest(&format!("sha-256=:{TEXT}:")), None);
    }
}
