//! Decodes text files in UTF-8 and UTF-16, as editors of all systems save them. Pure.

use std::borrow::Cow;

/// The text of a file in UTF-8 or UTF-16, without its byte order mark if it has one; `None` if the file is neither.
///
/// A file without a mark is UTF-16 if every other one of its first four bytes is zero (the rule of RFC 4627 §3), since
/// lists and documents begin with ASCII.
pub fn decode(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => std::str::from_utf8(rest).ok().map(Cow::Borrowed),
        // A UTF-16 file does not begin with NUL, so this is UTF-32, which no editor writes.
        [0xff, 0xfe, 0, 0, ..] => None,
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [1..=255, 0, 1..=255, 0, ..] => utf16(bytes, u16::from_le_bytes),
        [0, 1..=255, 0, 1..=255, ..] => utf16(bytes, u16::from_be_bytes),
        _ => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<Cow<'static, str>> {
    let pairs = bytes.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    let units = pairs.map(|pair| unit([pair[0], pair[1]]));
    char::decode_utf16(units).collect::<Result<String, _>>().ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf_8_and_utf_16_are_decoded_with_and_without_a_mark() {
        let text = "http://a/\u{e9}\u{1f600}\r\n";
        let wide =
            |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
        let (le, be) = (wide(u16::to_le_bytes), wide(u16::to_be_bytes));
        for bytes in [
            text.as_bytes().to_vec(),
            [b"\xef\xbb\xbf", text.as_bytes()].concat(),
            [b"\xff\xfe", &le[..]].concat(),
            [b"\xfe\xff", &be[..]].concat(),
            le.clone(),
            be.clone(),
        ] {
            assert_eq!(decode(&bytes).as_deref(), Some(text), "{:?}", &bytes[..4]);
        }
        for bad in [
            &b"caf\xe9"[..],
            b"\xff\xfea",
            b"\xff\xfe\x00\xd8a\0",
            b"\xff\xfe\0\0a\0\0\0",
            &le[..le.len() - 1],
        ] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
        assert_eq!((decode(b""), decode(b"\xff\xfe")), (Some("".into()), Some("".into())));
    }
}
