//! The results of all downloads of a run.

use super::{
    counts::DownloadCounts,
    tool::{Downloader, ToolEnd},
};
use crate::load::report::Report;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The result of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownloadResult {
    /// Exit code 0 and the right file.
    Right,
    /// Exit code 0 and a wrong file.
    Wrong,
    /// Another exit code, or a time-out.
    Failed,
}

/// One download.
#[derive(Clone, Debug)]
pub struct DownloadTrial {
    pub server: String,
    /// Whether the server's ranges and validators work.
    pub tolerant: bool,
    /// The tool that downloaded.
    pub tool: Downloader,
    /// The result.
    pub outcome: DownloadResult,
    /// The exit code, the time and the last error line.
    pub ended: ToolEnd,
    /// The server's counts, if it counts.
    pub counts: Option<DownloadCounts>,
}

impl DownloadTrial {
    /// The trial as a JSON object.
    pub fn json(&self) -> Value {
        let outcome = format!("{:?}", self.outcome).to_lowercase();
        let counts = self.counts.unwrap_or_default();
        json!({
            "server": self.server, "tool": self.tool.name(), "outcome": outcome,
            "code": self.ended.code, "seconds": self.ended.took.as_secs_f64(),
            "requests": counts.requests, "ranged": counts.ranged, "bytes": counts.bytes,
            "words": if self.outcome == DownloadResult::Right { "" } else { &self.ended.words },
        })
    }
}

/// All downloads of a run.
#[derive(Debug, Default)]
pub struct DownloadTally(Vec<DownloadTrial>);

impl DownloadTally {
    /// Adds a trial; prints it if it is not right.
    pub fn add(&mut self, trial: DownloadTrial) {
        if trial.outcome != DownloadResult::Right {
            let (name, words) = (trial.tool.name(), &trial.ended.words);
            let code =
                trial.ended.code.map_or("too late".to_owned(), |code| format!("code {code}"));
            thalweg_console::note!(
                "{}: {name}: {:?}, {code}: {words}",
                trial.server,
                trial.outcome
            );
        }
        self.0.push(trial);
    }

    fn trials_of(&self, tool: Downloader) -> impl Iterator<Item = &DownloadTrial> {
        self.0.iter().filter(move |trial| trial.tool == tool)
    }

    fn right_servers(&self, tool: Downloader) -> BTreeSet<&str> {
        let right = self.trials_of(tool).filter(|trial| trial.outcome == DownloadResult::Right);
        right.map(|trial| trial.server.as_str()).collect()
    }

    fn tools(&self) -> Vec<Downloader> {
        let mut tools: Vec<Downloader> = Vec::new();
        for trial in &self.0 {
            if !tools.contains(&trial.tool) {
                tools.push(trial.tool);
            }
        }
        tools
    }

    /// Servers from which curl got the file but `tool` did not.
    fn missed(&self, tool: Downloader) -> Vec<&str> {
        let own = self.right_servers(tool);
        self.right_servers(Downloader::Curl)
            .into_iter()
            .filter(|server| !own.contains(server))
            .collect()
    }

    /// Seconds of `tool` and of curl, summed over the tolerant servers from which both got the file.
    fn beside_curl(&self, tool: Downloader) -> (f64, f64) {
        let both = |trial: &&DownloadTrial| {
            trial.tolerant
                && self.right_servers(tool).contains(trial.server.as_str())
                && self.right_servers(Downloader::Curl).contains(trial.server.as_str())
        };
        let seconds = |tool| -> f64 {
            self.trials_of(tool).filter(both).map(|trial| trial.ended.took.as_secs_f64()).sum()
        };
        (seconds(tool), seconds(Downloader::Curl))
    }

    /// Reports the sums by tool.
    pub fn report(&self, report: &mut Report) {
        let servers: BTreeSet<_> = self.0.iter().map(|trial| &trial.server).collect();
        report.add("servers", "1", servers.len() as f64);
        for tool in self.tools() {
            self.report_tool(tool, report);
        }
    }

    fn report_tool(&self, tool: Downloader, report: &mut Report) {
        let name = tool.name();
        let count = |outcome| self.trials_of(tool).filter(|t| t.outcome == outcome).count() as f64;
        report.add(format!("right_{name}"), "1", count(DownloadResult::Right));
        report.add(format!("wrong_{name}"), "1", count(DownloadResult::Wrong));
        let counts = || self.trials_of(tool).filter_map(|trial| trial.counts);
        if counts().next().is_some() {
            let requests = || counts().map(|c| c.requests);
            report.add(format!("requests_{name}"), "1", requests().sum::<u64>() as f64);
            report.add(format!("most_requests_{name}"), "1", requests().max().unwrap_or(0) as f64);
            let bytes: Option<u64> = counts().map(|c| c.bytes).sum();
            let megabytes = bytes.map_or(f64::NAN, |bytes| bytes as f64 / 1e6);
            report.add(format!("bytes_{name}"), "MB", megabytes);
        }
        let took = self.trials_of(tool).map(|trial| trial.ended.took.as_secs_f64());
        report.add(format!("seconds_{name}"), "s", took.sum());
        let wrong: Vec<&str> = self
            .trials_of(tool)
            .filter(|t| t.outcome == DownloadResult::Wrong)
            .map(|t| t.server.as_str())
            .collect();
        report.add_text(format!("wrong_{name}"), wrong.join(" "));
        if tool == Downloader::Curl {
            return;
        }
        let missed = self.missed(tool);
        report.add(format!("missed_{name}"), "1", missed.len() as f64);
        report.add_text(format!("missed_{name}"), missed.join(" "));
        let (own, curl) = self.beside_curl(tool);
        // NaN, and therefore left out, if no server of the run is tolerant.
        report.add(format!("time_{name}"), "1", own / curl);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn trial(
        server: &str,
        tool: Downloader,
        outcome: DownloadResult,
        seconds: u64,
    ) -> DownloadTrial {
        let ended =
            ToolEnd { code: Some(0), took: Duration::from_secs(seconds), words: String::new() };
        let counts = Some(DownloadCounts {
            requests: 2,
            bytes: Some(1_000_000),
            ..DownloadCounts::default()
        });
        DownloadTrial { server: server.into(), tolerant: true, tool, outcome, ended, counts }
    }

    #[test]
    fn a_file_that_only_curl_gets_is_missed() {
        let mut tally = DownloadTally::default();
        tally.add(trial("a", Downloader::Curl, DownloadResult::Right, 2));
        tally.add(trial("a", Downloader::Get, DownloadResult::Right, 3));
        tally.add(trial("b", Downloader::Curl, DownloadResult::Right, 9));
        tally.add(trial("b", Downloader::Get, DownloadResult::Wrong, 1));
        tally.add(trial("c", Downloader::Curl, DownloadResult::Failed, 9));
        tally.add(trial("c", Downloader::Get, DownloadResult::Failed, 1));
        assert_eq!(tally.missed(Downloader::Get), ["b"]);
        let mut report = Report::default();
        tally.report(&mut report);
        let value = |name: &str| report.value(name).and_then(Value::as_f64);
        assert_eq!(value("servers"), Some(3.0));
        assert_eq!(value("right_curl"), Some(2.0));
        assert_eq!(value("wrong_get"), Some(1.0));
        assert_eq!(value("missed_get"), Some(1.0));
        assert_eq!(value("requests_get"), Some(6.0));
        assert_eq!(value("bytes_get"), Some(3.0));
        // Only servers from which both got the file count.
        assert_eq!(value("time_get"), Some(1.5));
    }
}
