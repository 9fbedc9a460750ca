//! The right name for a mistyped one.

/// The known name most like `name`, if any is alike at all; of equals the first by the alphabet.
///
/// Likeness is the number of letters added, dropped, changed or swapped with a
/// neighbour (Damerau 1964): at most half of the name's, for more is no likeness.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = name.chars().count().div_ceil(2).max(1);
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(name, k), k))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, k)| k)
}

/// Of serde's "unknown field `x`, expected one of `a`, `b`": the one of them nearest to `x`.
///
/// `None` for other messages, and if none is alike.
pub fn nearest_expected(message: &str) -> Option<&str> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let name = quoted.next().filter(|_| message.starts_with("unknown "))?;
    nearest(name, quoted)
}

/// A line to add to serde's `message`: the nearest name that it expected, or nothing.
pub fn hint(message: &str) -> String {
    nearest_expected(message).map(|n| format!("\nhint: did you mean `{n}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_only_when_alike() {
        let known = ["access", "core", "relay1.access"];
        assert_eq!(nearest("acess", known), Some("access"));
        assert_eq!(nearest("cor", known), Some("core"));
        assert_eq!(nearest("zzzzz", known), None);
        assert_eq!(nearest("", []), None);
    }

    #[test]
    fn serdes_messages_are_understood() {
        let unknown = "unknown field `iddle`, expected one of `idle`, `linger`";
        assert_eq!(nearest_expected(unknown), Some("idle"));
        assert_eq!(nearest_expected("unknown variant `opne`, expected `open`"), Some("open"));
        for other in ["", "`a`", "unknown ", "missing field `idle`", "unknown field `x`"] {
            assert_eq!(nearest_expected(other), None, "{other}");
        }
    }
}
