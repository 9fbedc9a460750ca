//! The report of the demonstration, as a table and as JSON.

use super::download::{DownloadOutcome, RELAY_LIMIT, Revoked};
use super::network::{CLIENT, PathProperties, RELAYS};
use super::scratch::Verdict;
use serde_json::{Value, json};
use std::time::Duration;
use thalweg_lab::stats::Lateness;
use thalweg_units::Rate;

/// Above this lateness the machine is too busy: about a tenth of the shortest round trip (44 ms).
const LATENESS_BOUND_US: u64 = 5_000;

/// A reachable relay must stop serving a revoked member within this time.
const REVOKED_WITHIN: Duration = Duration::from_secs(10);

/// One download, or the reason why it was not run.
pub struct DownloadRow {
    /// The name of the download.
    pub name: String,
    /// The result, or the reason why it was not run.
    pub outcome: Result<DownloadOutcome, String>,
    /// The path's links; for `get`, which uses several paths, the limit of all together.
    pub course: PathProperties,
}

/// All rows of one run; the first one is the direct download.
pub struct DemoReport {
    /// Size of the served file, bytes.
    pub size: u64,
    /// The web server's program.
    pub server: &'static str,
    /// The downloads, in order.
    pub rows: Vec<DownloadRow>,
    /// The roster version that all nodes had before the downloads.
    pub version: u64,
    /// Time from the first command of the mesh until all nodes had that version.
    pub founded: Duration,
    /// The emulator's lateness of packets.
    pub lateness: Lateness,
}

impl DemoReport {
    /// Whether every download that was run delivered the right bytes, and the client received nothing later than
    /// [`REVOKED_WITHIN`] after its revocation.
    pub fn is_success(&self) -> bool {
        let ran = || self.rows.iter().filter_map(|row| row.outcome.as_ref().ok());
        let cut = |revoked: &Revoked| revoked.last_byte < REVOKED_WITHIN;
        ran().all(|outcome| outcome.verdict != Verdict::Wrong)
            && ran().filter_map(|outcome| outcome.revoked.as_ref()).all(cut)
    }

    /// The table and the notes that explain it.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<17} {:>7} {:>12} {:>9} {:>13} {:>7} {:>6}  {}\n",
            "",
            "time, s",
            "rate, Mbit/s",
            "to direct",
            "limit, Mbit/s",
            "RTT, ms",
            "loss,%",
            "bytes (compared with what is served)"
        );
        for row in &self.rows {
            text += &self.line(row);
        }
        text += &self.notes();
        let cut = self.rows.iter().filter_map(|row| row.outcome.as_ref().ok()?.revoked.as_ref());
        text += &cut.map(epilogue).collect::<String>();
        text
    }

    fn notes(&self) -> String {
        format!(
            "\n{} MB from {}. Relays are nodes of a mesh, reached by TLS 1.3 with keys that its \
             roster names;\ndownloads through one relay are stopped after {} s. The limit is the narrowest link \
             of the path, headers included;\nfor get, which samples all paths, it is the rate that they \
             carry together. RTT: of each leg, without queues.\nA lossy leg stays far below \
             its limit, because TCP treats loss as congestion.\nThe emulator was {} µs late at the 99th \
             percentile{}.\n",
            self.size as f64 / 1e6,
            self.server,
            RELAY_LIMIT.as_secs(),
            self.lateness.p99_us,
            if self.is_on_time() {
                ""
            } else {
                ", so this machine and not the network may limit the rates"
            },
        )
    }

    /// The report as one JSON object.
    pub fn json(&self) -> Value {
        json!({
            "bytes": self.size,
            "server": self.server,
            "right": self.is_success(),
            "valid": self.is_on_time(),
            "mesh": {
                "relays": RELAYS.len(),
                "roster_version": self.version,
                "founded_s": self.founded.as_secs_f64(),
            },
            "lateness_us": self.lateness,
            "rows": self.rows.iter().map(|row| self.row_json(row)).collect::<Vec<_>>(),
        })
    }

    fn is_on_time(&self) -> bool {
        self.lateness.p99_us <= LATENESS_BOUND_US
    }

    fn line(&self, row: &DownloadRow) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        let limit = or_dash(row.course.limit.map(|limit| format!("{:.1}", limit.as_mbps())));
        let rtts: Vec<String> = rtts_ms(&row.course).map(|ms| format!("{ms:.0}")).collect();
        let rtts = or_dash((!rtts.is_empty()).then(|| rtts.join("+")));
        let loss = or_dash(row.course.loss.map(|loss| format!("{:.3}", loss * 100.0)));
        match &row.outcome {
            Err(reason) => format!("{:<17} skipped: {reason}\n", row.name),
            Ok(outcome) => format!(
                "{:<17} {:>7.1} {:>12.1} {:>9} {limit:>13} {rtts:>7} {loss:>6}  {}\n",
                row.name,
                outcome.took.as_secs_f64(),
                outcome.rate().as_mbps(),
                or_dash(self.ratio(outcome).map(|ratio| format!("{ratio:.2}×"))),
                remark(outcome),
            ),
        }
    }

    fn row_json(&self, row: &DownloadRow) -> Value {
        let limit = row.course.limit.map(Rate::as_mbps);
        match &row.outcome {
            Err(reason) => json!({ "name": row.name, "skipped": reason, "limit_mbps": limit }),
            Ok(outcome) => json!({
                "name": row.name,
                "seconds": outcome.took.as_secs_f64(),
                "mbps": outcome.rate().as_mbps(),
                "ratio_to_direct": self.ratio(outcome),
                "limit_mbps": limit,
                "leg_rtts_ms": rtts_ms(&row.course).collect::<Vec<_>>(),
                "loss": row.course.loss,
                "bytes": outcome.bytes,
                "verified": match outcome.verdict {
                    Verdict::Whole => "whole",
                    Verdict::Part => "part",
                    Verdict::Wrong => "wrong",
                },
                "chosen": outcome.chosen,
                "killed_at_bytes": outcome.killed_at,
                "revoked": outcome.revoked.as_ref().map(revoked_json),
            }),
        }
    }

    fn ratio(&self, outcome: &DownloadOutcome) -> Option<f64> {
        let direct = self.rows.first()?.outcome.as_ref().ok()?.rate().as_mbps();
        (direct > 0.0).then(|| outcome.rate().as_mbps() / direct)
    }
}

/// Round-trip times of the legs, ms.
fn rtts_ms(course: &PathProperties) -> impl Iterator<Item = f64> {
    course.rtts.iter().map(|rtt| rtt.as_secs_f64() * 1e3)
}

fn revoked_json(revoked: &Revoked) -> Value {
    json!({
        "member": CLIENT,
        "at_bytes": revoked.at,
        "last_byte_s": revoked.last_byte.as_secs_f64(),
        "confirmed": revoked.confirmed.0,
        "of": revoked.confirmed.1,
        "why": revoked.why,
    })
}

/// Describes the effect of the revocation below the table.
fn epilogue(revoked: &Revoked) -> String {
    let Revoked { at, last_byte, confirmed: (have, of), why } = revoked;
    let ending = match why {
        Some(why) => format!("`thalweg get` ended:\n  {why}"),
        None => "`thalweg get` was stopped while it was retrying.".to_owned(),
    };
    format!(
        "\n`thalweg mesh revoke {CLIENT}`, {:.1} MB into its download: the last byte arrived at most {:.2} s \
         later;\n{have} of {of} nodes have confirmed the new roster. {ending}\n",
        *at as f64 / 1e6,
        last_byte.as_secs_f64(),
    )
}

fn remark(outcome: &DownloadOutcome) -> String {
    let mut text = match outcome.verdict {
        Verdict::Whole => "all right".to_owned(),
        Verdict::Part => format!("{:.1} MB, right", outcome.bytes as f64 / 1e6),
        Verdict::Wrong => "WRONG".to_owned(),
    };
    for (index, path) in outcome.chosen.iter().enumerate() {
        text += if index == 0 { "; chose " } else { ", then " };
        text += path;
        if let (0, Some(bytes)) = (index, outcome.killed_at) {
            text += &format!(", killed at {:.1} MB", bytes as f64 / 1e6);
        }
    }
    if let Some(revoked) = &outcome.revoked {
        let seconds = revoked.last_byte.as_secs_f64();
        text += &format!("; cut off {seconds:.1} s after `thalweg mesh revoke`");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(verdict: Verdict, last_byte: Option<f64>) -> DownloadOutcome {
        let revoked = |seconds| Revoked {
            at: 2_000_000,
            last_byte: Duration::from_secs_f64(seconds),
            confirmed: (6, 6),
            why: Some("the relay does not admit this host's key".into()),
        };
        DownloadOutcome {
            bytes: 3_000_000,
            took: Duration::from_secs(2),
            verdict,
            chosen: Vec::new(),
            killed_at: None,
            revoked: last_byte.map(revoked),
        }
    }

    fn report(outcomes: Vec<Result<DownloadOutcome, String>>) -> DemoReport {
        let row = |outcome| DownloadRow {
            name: "get".into(),
            outcome,
            course: PathProperties::default(),
        };
        DemoReport {
            size: 4_000_000,
            server: "nginx",
            rows: outcomes.into_iter().map(row).collect(),
            version: 7,
            founded: Duration::from_secs(3),
            lateness: Lateness::default(),
        }
    }

    #[test]
    fn wrong_bytes_and_bytes_long_after_a_revocation_are_failures() {
        let good = |outcome| report(vec![Ok(outcome)]).is_success();
        assert!(good(outcome(Verdict::Whole, None)));
        assert!(!good(outcome(Verdict::Wrong, None)));
        assert!(good(outcome(Verdict::Part, Some(0.4))));
        assert!(!good(outcome(Verdict::Part, Some(10.1))));
        assert!(report(vec![Err("not installed".into())]).is_success());
    }

    #[test]
    fn a_revocation_appears_in_the_row_below_the_table_and_in_the_json() {
        let report = report(vec![Ok(outcome(Verdict::Part, Some(0.42)))]);
        let table = report.table();
        assert!(
            table.contains("3.0 MB, right; cut off 0.4 s after `thalweg mesh revoke`\n"),
            "{table}"
        );
        let expected =
            "2.0 MB into its download: the last byte arrived at most 0.42 s later;\n6 of 6";
        assert!(table.contains(expected), "{table}");
        assert!(table.contains("  the relay does not admit this host's key\n"), "{table}");
        let revoked = &report.json()["rows"][0]["revoked"];
        assert_eq!(revoked["last_byte_s"], 0.42);
        assert_eq!(revoked["at_bytes"], 2_000_000);
    }
}
