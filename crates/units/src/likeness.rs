//! Suggests the right name for a mistyped one.

/// The known name most similar to `name`, if any is similar; of equally similar names the first in alphabetical order.
///
/// Similarity is measured by the number of letters added, dropped, changed or swapped with a neighbour (Damerau 1964).
/// A name is similar if they are at most half of the letters of `name`, rounded up.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = name.chars().count().div_ceil(2).max(1);
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(name, k), k))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, k)| k)
}

/// The expected name most similar to `x` in a message of serde: "unknown field `x`, expected one of `a`, `b`".
///
/// `None` for other messages, and if no expected name is similar.
pub fn nearest_expected(message: &str) -> Option<&str> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let name = quoted.next().filter(|_| message.starts_with("unknown "))?;
    nearest(name, quoted)
}

/// A line to append to serde's `message`, with the most similar expected name; empty if there is none.
pub fn hint(message: &str) -> String {
    nearest_expected(message).map(|n| format!("\nhint: did you mean `{n}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_suggested_only_if_it_is_similar() {
        let known = ["access", "core", "relay1.access"];
        assert_eq!(nearest("acess", known), Some("access"));
        assert_eq!(nearest("cor", known), Some("core"));
        assert_eq!(nearest("zzzzz", known), None);
        assert_eq!(nearest("", []), None);
    }

    #[test]
    fn messages_of_serde_are_parsed() {
        let unknown = "unknown field `iddle`, expected one of `idle`, `linger`";
        assert_eq!(nearest_expected(unknown), Some("idle"));
        assert_eq!(nearest_expected("unknown variant `opne`, expected `open`"), Some("open"));
        for other in ["", "`a`", "unknown ", "missing field `idle`", "unknown field `x`"] {
            assert_eq!(nearest_expected(other), None, "{other}");
        }
    }
}
