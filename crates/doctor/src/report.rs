//! All findings of one examination.

use serde::Serialize;
use thalweg_wire::doctor::{Finding, Severity};

/// The findings, the most serious first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub findings: Vec<Finding>,
}

impl Report {
    /// Creates a report; findings of one severity keep their order.
    pub fn new(mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Self { findings }
    }

    /// The number of findings of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Whether no finding is a warning or an error.
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity < Severity::Warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_serious_findings_come_first_and_notes_are_healthy() {
        let note = Finding::note("nat.translated", "a");
        let report = Report::new(vec![Finding::ok("disk.space", "b"), note.clone()]);
        assert!(report.is_healthy() && report.findings[0] == note);
        let report = Report::new(vec![note, Finding::warning("disk.low", "c")]);
        assert_eq!((report.is_healthy(), report.count(Severity::Warning)), (false, 1));
        assert_eq!(report.findings[0].id, "disk.low");
    }
}
