//! File names that others have chosen, made safe to keep.

/// The longest name that is made, in bytes: of the 255 that file systems allow, the
/// temporary names beside a file in the making need 22.
pub const MAX: usize = 200;

/// `text` as a name that is safe in any directory; `None` if nothing is left of it.
///
/// Separators, control and direction characters, and what could not be decoded (U+FFFD)
/// become `_`, as does a dot or a dash in front: a download shall not leave its directory,
/// hide itself, replace a hidden file, look like an option, or show another ending than it
/// has. White space around it goes. Cut to [`MAX`] bytes.
pub fn safe(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() || matches!(text, "." | "..") {
        return None;
    }
    let mut name: String = text.chars().map(|c| if is_unsafe(c) { '_' } else { c }).collect();
    if name.starts_with(['.', '-']) {
        name.replace_range(..1, "_");
    }
    while name.len() > MAX {
        name.pop();
    }
    Some(name.trim_end().to_owned())
}

/// The last component of `text`, whichever separator it was written with, made [`safe`].
pub fn safe_last_component(text: &str) -> Option<String> {
    safe(text.rsplit(['/', '\\']).next()?)
}

fn is_unsafe(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}');
    let breaks = matches!(c, '\u{2028}' | '\u{2029}');
    // Of no width: two names would look alike.
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
        assert_eq!(safe(&"é".repeat(101)).map(|n| n.len()), Some(MAX));
        assert_eq!(safe_last_component("C:\\dir/a"), Some("a".to_owned()));
        assert_eq!(safe_last_component("a/.."), None);
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
