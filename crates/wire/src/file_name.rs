//! Makes file names from untrusted sources safe to use.

/// The longest resulting name, in bytes. File systems allow 255, of which the temporary files beside an unfinished file
/// need 22.
pub const MAX: usize = 200;

/// Makes `text` a name that is safe in any directory; `None` if nothing is left.
///
/// Separators, control and direction characters, and undecodable bytes (U+FFFD) become `_`, as does a leading dot or
/// dash: a download must not leave its directory, hide itself, replace a hidden file, look like an option, or show an
/// extension that it does not have. Surrounding white space is removed. A long name is shortened to [`MAX`] bytes as by
/// [`fitting`].
pub fn safe(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() || matches!(text, "." | "..") {
        return None;
    }
    let mut name: String = text.chars().map(|c| if is_unsafe(c) { '_' } else { c }).collect();
    if name.starts_with(['.', '-']) {
        name.replace_range(..1, "_");
    }
    let name = match name.len() > MAX {
        true => String::from_utf8(fitting(name.as_bytes(), MAX)).ok()?,
        false => name,
    };
    Some(name.trim_end().to_owned())
}

/// The longest extension that a shortened name keeps, in bytes: `.tar.zst.sha256` has 15.
const MAX_ENDING: usize = 16;

/// Shortens `name` to at most `most` bytes (at least 64): the first characters, `~`, 16 hexadecimal digits of the
/// BLAKE3 hash of the whole name, and the extension. Two long names stay distinct, and programs still recognise the
/// type of the file. UTF-8 stays UTF-8.
pub fn fitting(name: &[u8], most: usize) -> Vec<u8> {
    let most = most.max(64);
    if name.len() <= most {
        return name.to_vec();
    }
    let ending = ending(name);
    let digest = blake3::hash(name).to_hex();
    let mut length = most - 1 - 16 - ending.len();
    // Do not split a UTF-8 character: its continuation bytes are 10xxxxxx.
    while length > 0 && name.get(length).is_some_and(|byte| byte & 0xc0 == 0x80) {
        length -= 1;
    }
    [&name[..length], b"~", &digest.as_bytes()[..16], ending].concat()
}

/// The extension: up to two parts after dots, if they are alphanumeric and have at most [`MAX_ENDING`] bytes together.
fn ending(name: &[u8]) -> &[u8] {
    let plain = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_alphanumeric);
    let mut from = name.len();
    for _ in 0..2 {
        let Some(dot) = name[..from].iter().rposition(|byte| *byte == b'.') else { break };
        if dot == 0 || name.len() - dot > MAX_ENDING || !plain(&name[dot + 1..from]) {
            break;
        }
        from = dot;
    }
    &name[from..]
}

/// Makes the last component of `text` [`safe`]; components are separated by `/` or `\`.
pub fn safe_last_component(text: &str) -> Option<String> {
    safe(text.rsplit(['/', '\\']).next()?)
}

fn is_unsafe(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}');
    let breaks = matches!(c, '\u{2028}' | '\u{2029}');
    // Characters without width would make two names look alike.
    let unseen = matches!(c, '\u{200b}' | '\u{2060}' | '\u{feff}');
    c.is_control()
        || turns
        || breaks
        || unseen
        || matches!(c, '/' | '\\' | char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_stay_inside_their_directory() {
        for (text, name) in [
            ("a.iso", Some("a.iso")),
            (" a b ", Some("a b")),
            ("../../etc/passwd", Some("_._.._etc_passwd")),
            ("..\\x", Some("_._x")),
            (".bashrc", Some("_bashrc")),
            ("-rf", Some("_rf")),
            ("a\0\nb", Some("a__b")),
            ("photo\u{202e}gpj.exe", Some("photo_gpj.exe")),
            ("a\u{2028}b\u{2066}c\u{61c}d", Some("a_b_c_d")),
            ("..", None),
            (".", None),
            (" \u{3000}", None),
            ("", None),
        ] {
            assert_eq!(safe(text).as_deref(), name, "{text:?}");
        }
        assert_eq!(safe(&"é".repeat(100)).map(|n| n.len()), Some(MAX));
        assert_eq!(safe_last_component("C:\\dir/a"), Some("a".to_owned()));
        assert_eq!(safe_last_component("a/.."), None);
    }

    #[test]
    fn a_long_name_keeps_its_beginning_and_extension() {
        for (ending, kept) in [
            (".pdf", ".pdf"),
            (".tar.gz", ".tar.gz"),
            (".report.pdf", ".report.pdf"),
            (".2024.annual-report.pdf", ".pdf"),
            (".", ""),
            (" the first sentence. and more", ""),
            (".アーカイブ", ""),
            ("", ""),
        ] {
            let name = format!("{}{ending}", "n".repeat(240));
            let short = fitting(name.as_bytes(), MAX);
            assert_eq!(short.len(), MAX, "{ending}");
            assert!(short.starts_with(b"nnnn") && short.ends_with(kept.as_bytes()), "{ending}");
            assert_eq!(fitting(name.as_bytes(), 300), name.as_bytes());
        }
        let wide = fitting("確".repeat(90).as_bytes(), MAX);
        assert!(String::from_utf8(wide).is_ok());
        let safe_with = |last| safe(&format!("{}{last}.pdf", "n".repeat(230))).unwrap();
        assert_ne!(safe_with("1"), safe_with("2"), "two names stay two");
        assert!(safe_with("1").ends_with(".pdf") && safe(&safe_with("1")) == Some(safe_with("1")));
        assert!(fitting(&[0xb0; 300], 100).len() <= 100, "no UTF-8");
        assert!(fitting(&[b'a'; 300], 0).len() == 64);
    }

    proptest! {
        #[test]
        fn no_text_gives_an_unsafe_name(text in any::<String>()) {
            for name in [safe(&text), safe_last_component(&text)].into_iter().flatten() {
                prop_assert!((1..=MAX).contains(&name.len()), "{name:?}");
                prop_assert!(!name.contains(['/', '\\', '\0', '\n']), "{name:?}");
                prop_assert!(!name.starts_with(['.', '-', ' ']), "{name:?}");
                prop_assert_eq!(safe(&name), Some(name.clone()));
            }
        }
    }
}
