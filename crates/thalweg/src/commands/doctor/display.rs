//! Findings as text and as JSON.

use crate::commands::text::{counted, plain};
use serde_json::{Value, json};
use std::fmt::Write as _;
use thalweg_doctor::{Finding, Report, Severity};

/// The report as one JSON object.
pub(super) fn json(report: &Report) -> Value {
    let count = |severity| report.count(severity);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "healthy": report.is_healthy(),
        "counts": {
            "error": count(Severity::Error),
            "warning": count(Severity::Warning),
            "note": count(Severity::Note),
            "unchecked": count(Severity::Unchecked),
            "ok": count(Severity::Ok),
        },
        "findings": report.findings,
    })
}

/// The problems, or all findings, and a line that counts the others. Texts may be a peer's, so they are escaped.
pub(super) fn text(report: &Report, verbose: bool) -> String {
    let least = if verbose { Severity::Ok } else { Severity::Warning };
    let shown = report.findings.iter().filter(|finding| finding.severity >= least);
    let mut text: String = shown.map(entry).collect();
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&summary(report, verbose));
    text.push('\n');
    text
}

fn entry(finding: &Finding) -> String {
    let Finding { id, severity, seen, means, remedy } = finding;
    let mut text = format!("{:<9}  {:<22}  {}\n", severity.label(), plain(id), plain(seen));
    for (word, line) in [("means", means), ("try", remedy)] {
        if !line.is_empty() {
            // Writing to a string cannot fail.
            _ = writeln!(text, "{:11}{word:<5}  {}", "", plain(line));
        }
    }
    text
}

fn summary(report: &Report, verbose: bool) -> String {
    let [errors, warnings, notes, unchecked, ok] =
        [Severity::Error, Severity::Warning, Severity::Note, Severity::Unchecked, Severity::Ok]
            .map(|severity| report.count(severity) as u64);
    let found = match (errors, warnings) {
        (0, 0) => "nothing is wrong".to_owned(),
        _ => format!("{}, {}", counted(errors, "error"), counted(warnings, "warning")),
    };
    let hint = if verbose { "" } else { "; -v shows all" };
    format!(
        "{found}; {}, {} in order, {unchecked} not possible{hint}",
        counted(notes, "note"),
        counted(ok, "check")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let full = Finding::error("disk.full", "inbox /in: 0 B are free\u{1b}[2J");
        let full = full.means("no cast fits").remedy("du -xh /in");
        Report::new(vec![Finding::ok("clock.offset", "within 2 s of fra"), full])
    }

    #[test]
    fn problems_come_with_their_meaning_and_a_command() {
        let expected = "\
error      disk.full               inbox /in: 0 B are free\\u001b[2J
           means  no cast fits
           try    du -xh /in

1 error, 0 warnings; 0 notes, 1 check in order, 0 not possible; -v shows all
";
        assert_eq!(text(&report(), false), expected);
        assert!(text(&report(), true).contains("clock.offset"));
        assert!(text(&Report::default(), false).starts_with("nothing is wrong; 0 notes"));
    }

    #[test]
    fn json_counts_what_it_lists() {
        let json = json(&report());
        assert_eq!((&json["healthy"], &json["counts"]["error"]), (&json!(false), &json!(1)));
        assert_eq!(json["findings"][0]["severity"], "error");
        assert_eq!(json["findings"][0]["remedy"], "du -xh /in");
    }
}
