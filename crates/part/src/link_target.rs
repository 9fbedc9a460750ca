//! Checks that symbolic links from another member stay inside the inbox.

/// Checks the target of a link in a directory that is `depth` directories below the inbox `inbox`.
///
/// All links there were either checked by this rule or made by the host's own users, and the path of a link's directory
/// contains no link. So a target stays inside if it first goes up, at most to `inbox`, and then only down: behind a
/// name, which may be a link, `..` could lead anywhere. An absolute target must name something below `inbox`.
///
/// # Errors
/// Why the link must not have this target.
pub fn check(target: &[u8], inbox: &[u8], depth: usize) -> Result<(), &'static str> {
    let below = match target {
        [] => return Err("a link with an empty target"),
        [b'/', ..] => below(target, inbox).ok_or("a link that leads out of the inbox")?,
        relative => relative,
    };
    let parts =
        || below.split(|letter| *letter == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let up = parts().take_while(|part| *part == b"..").count();
    let may_go_up = if target.starts_with(b"/") { 0 } else { depth };
    if up > may_go_up {
        return Err("a link that leads out of the inbox");
    }
    if parts().skip(up).any(|part| part == b"..") {
        return Err("a link with `..` after a name, which may lead out of the inbox");
    }
    Ok(())
}

/// The path relative to `inbox`, if it is `inbox` or below.
fn below<'a>(path: &'a [u8], inbox: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(inbox)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_in_the_inbox() {
        for (target, depth, is_taken) in [
            ("file", 0, true),
            ("./a/./b", 0, true),
            ("../file", 1, true),
            ("../../file", 1, false),
            ("..", 1, true),
            ("..", 0, false),
            ("a/../b", 3, false),
            ("../a/..", 3, false),
            ("/inbox/a", 0, true),
            ("/inbox", 0, true),
            ("/inbox/../etc", 5, false),
            ("/inboxes/a", 0, false),
            ("/etc/passwd", 9, false),
            ("//inbox/a", 0, false),
            ("", 1, false),
            ("a..b/...", 0, true),
        ] {
            let taken = check(target.as_bytes(), b"/inbox", depth);
            assert_eq!(taken.is_ok(), is_taken, "{target} {depth}");
        }
        assert!(check(b"/etc/passwd", b"", 0).is_ok(), "all of the host is the inbox");
    }
}
