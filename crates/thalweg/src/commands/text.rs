//! Formats values for people: aligned columns, rounded durations, counts; and prints them.

use std::time::Duration;

/// Writes a command's data to standard output. If the reader stops, as `head` does, that is the end and no failure.
///
/// # Errors
/// As [`thalweg_console::say`].
pub fn say(text: &str) -> anyhow::Result<()> {
    Ok(thalweg_console::say(text)?)
}

/// A table: rows below their heads, each column as wide as its widest cell; ends with a line end.
pub fn aligned<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let head = head.map(str::to_owned);
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| plain(cell))).collect();
    let all = || std::iter::once(&head).chain(&rows);
    let width = |i: usize| all().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    all().map(line).collect()
}

/// Prints what to do next on standard error: commands, with remarks in a column.
pub fn next_steps<const N: usize>(steps: [(String, &str); N]) {
    let width = steps.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    thalweg_console::note!("Next:");
    for (command, why) in steps {
        thalweg_console::note!("  {command:width$}   # {why}");
    }
}

/// Escapes a path, which others may have chosen, for one line of a terminal.
pub fn printable(path: impl AsRef<std::path::Path>) -> String {
    plain(&path.as_ref().to_string_lossy())
}

/// Escapes untrusted text for one line of a terminal, see [`thalweg_console::field`].
pub fn plain(text: &str) -> String {
    thalweg_console::field(text).into_owned()
}

/// A duration in its two largest units: `6 d 23 h`, `5 min`, `0 s`.
pub fn rough(d: Duration) -> String {
    let s = d.as_secs();
    let pair = |n: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{n} {unit}"),
        _ => format!("{n} {unit} {rest} {small}"),
    };
    match s {
        0..60 => format!("{s} s"),
        60..3600 => pair(s / 60, "min", s % 60, "s"),
        3600..86_400 => pair(s / 3600, "h", s % 3600 / 60, "min"),
        _ => pair(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// A count of things: `1 member`, `2 members`.
pub fn counted(n: u64, thing: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {thing}{plural}")
}

/// A size with three significant digits: `12.3 MB`.
pub fn size(bytes: u64) -> String {
    scaled(bytes, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// A rate with three significant digits: `12.3 Mbit/s`.
pub fn rate(bps: u64) -> String {
    scaled(bps, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

fn scaled(value: u64, units: &[&str]) -> String {
    let mut number = value as f64;
    let mut unit = 0;
    // 999.5 would be rounded to four digits.
    while number >= 999.5 && unit + 1 < units.len() {
        number /= 1000.0;
        unit += 1;
    }
    let decimals = match number {
        _ if unit == 0 => 0,
        n if n < 9.995 => 2,
        n if n < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{number:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text} {}", units.get(unit).unwrap_or(&""))
}

/// Items separated by commas, or a dash.
pub fn listed<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let text = aligned(["NAME", "TAGS"], &[row("fra-long", "-"), row("é", "x,y")]);
        assert_eq!(text, "NAME      TAGS\nfra-long  -\né         x,y\n");
    }

    #[test]
    fn a_path_cannot_control_a_terminal() {
        assert_eq!(printable("a\u{1b}[2J\nb é"), r"a\u001b[2J\nb é");
        let rows = [["a\nb".to_owned(), "\u{202e}c".to_owned()]];
        assert_eq!(aligned(["A", "B"], &rows), "A     B\na\\nb  \\u202ec\n");
    }

    #[test]
    fn one_is_singular() {
        let texts = [0, 1, 2].map(|n| counted(n, "member"));
        assert_eq!(texts, ["0 members", "1 member", "2 members"]);
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3601, "1 h"),
            (7265, "2 h 1 min"),
            (604_799, "6 d 23 h"),
        ] {
            assert_eq!(rough(Duration::from_secs(seconds)), text);
        }
        assert_eq!((listed(["a", "b"]), listed::<String>([])), ("a,b".into(), "-".into()));
    }
}
