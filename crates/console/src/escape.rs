//! Escapes untrusted text for a terminal.
//!
//! Terminals obey control characters, which move the cursor or set the window's title; some make the terminal send text
//! as if it were typed. Bidirectional formatting characters make one name look like another. All of them are shown as
//! escapes in JSON's notation, so that an escaped JSON document keeps its meaning.

use std::{borrow::Cow, fmt::Write as _};

/// Escapes text of several lines: control characters except line ends and tabs.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_obeyed(c) && !matches!(c, '\n' | '\t'))
}

/// Escapes text of a single line: as [`plain`], and also line ends and tabs.
pub fn field(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// Whether a terminal obeys the character instead of showing it: C0, DEL, C1, line and paragraph separators (U+2028,
/// U+2029), and bidirectional formatting (UAX #9, section 2).
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_escaped(c) => shown.push(c),
            '\n' => shown.push_str(r"\n"),
            '\r' => shown.push_str(r"\r"),
            '\t' => shown.push_str(r"\t"),
            // Writing to a string cannot fail. All of these characters are at most U+FFFF.
            c => _ = write!(shown, r"\u{:04x}", u32::from(c)),
        }
    }
    Cow::Owned(shown)
}

/// Indents each line after the first by two blanks.
pub(crate) fn indented(text: &str) -> Cow<'_, str> {
    let mut lines = text.split('\n');
    let (Some(first), true) = (lines.next(), text.contains('\n')) else {
        return Cow::Borrowed(text);
    };
    let mut all = first.to_owned();
    for line in lines {
        let blanks = if line.is_empty() || line.starts_with("  ") { "" } else { "  " };
        _ = write!(all, "\n{blanks}{line}");
    }
    Cow::Owned(all)
}

/// As [`plain`], but keeps sequences that only set a colour or weight: `ESC [ 1 ; 31 m`.
pub(crate) fn styled(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut pieces = text.split('\u{1b}');
    shown.push_str(&plain(pieces.next().unwrap_or_default()));
    for piece in pieces {
        let style = piece.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        let is_style =
            |(numbers, _): &(&str, &str)| numbers.bytes().all(|b| b.is_ascii_digit() || b == b';');
        match style.filter(is_style) {
            Some((numbers, rest)) => _ = write!(shown, "\u{1b}[{numbers}m{}", plain(rest)),
            None => _ = write!(shown, r"\u001b{}", plain(piece)),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("\u{1b}]0;owned\u{7}\u{1b}[2J"), r"\u001b]0;owned\u0007\u001b[2J");
        assert_eq!(plain("a\u{7f}\u{9b}31m\r\nb\tc"), "a\\u007f\\u009b31m\\r\nb\tc");
        for c in
            ('\u{2028}'..='\u{202e}').chain('\u{2066}'..='\u{2069}').chain(['\u{200e}', '\u{200f}'])
        {
            assert_eq!(plain(&format!("a{c}b")), format!(r"a\u{:04x}b", u32::from(c)));
        }
        assert_eq!(field("a\nb\tc\u{1b}"), r"a\nb\tc\u001b");
    }

    #[test]
    fn an_escaped_json_document_is_the_same_document() {
        let all: String = ('\0'..='\u{9f}').chain('\u{2020}'..='\u{206f}').collect();
        let document = serde_json::json!({ "why": all, "é": ["\u{1f600}\u{202e}", 1] });
        for text in [document.to_string(), serde_json::to_string_pretty(&document).unwrap()] {
            let shown = plain(&text);
            assert!(!shown.contains(|c| is_obeyed(c) && c != '\n'), "{shown:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), document);
        }
    }

    #[test]
    fn other_text_is_returned_without_a_copy() {
        // The last contains a zero-width joiner, which family emoji and some scripts need.
        for text in ["", "plain", "né €", "日本語", "עברית", "👨\u{200d}👩"] {
            assert!(matches!(field(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn further_lines_are_indented() {
        assert_eq!(
            indented("thalweg: refused\njoined as root"),
            "thalweg: refused\n  joined as root"
        );
        assert_eq!(indented("a\n  b\n\n c"), "a\n  b\n\n   c");
        assert_eq!(indented("one line"), "one line");
    }

    #[test]
    fn colours_of_the_programs_own_text_are_kept() {
        let usage = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m no \u{1b}[2Jfile\u{9b}\nnext";
        assert_eq!(
            styled(usage),
            "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m no \\u001b[2Jfile\\u009b\nnext"
        );
        assert_eq!(styled("\u{1b}[m\u{1b}"), "\u{1b}[m\\u001b");
    }
}
