//! Downloads from each server with each tool in turn and classifies the results.

use super::{
    counts::{self, AccessLog, DownloadCounts},
    kinds::{DeviationClass, KINDS, ServerKind},
    tally::{DownloadResult, DownloadTally, DownloadTrial},
    tool::{Downloader, Settings},
};
use crate::load::report::Report;
use anyhow::{Context as _, bail, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Arguments of `thalweg-bench load servers run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The scripted server, `http://HOST:PORT`
    #[arg(long, value_name = "URL", required_unless_present = "real")]
    at: Option<String>,
    /// Only kinds of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<DeviationClass>,
    /// The kinds of servers, or `all`; with --class only those of that class
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', default_value = "all")]
    kinds: Vec<String>,
    /// A real server instead of the scripted one, and the URL of the file there
    #[arg(long, value_name = "NAME=URL")]
    real: Option<String>,
    /// Access log of the real server: one line per request; its last word is the number of bytes, if it is a number
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// File with the expected content
    #[arg(long, value_name = "FILE")]
    content: PathBuf,
    /// Working directory; it is created
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The tools
    #[arg(
        long,
        value_name = "TOOL,…",
        value_delimiter = ',',
        default_value = "curl,wget,aria2,get,relays"
    )]
    tools: Vec<Downloader>,
    /// Number of the round; each round begins with another tool
    #[arg(long, value_name = "N", default_value_t = 0)]
    round: usize,
    /// Write a line of JSON for each download to this file
    #[arg(long, value_name = "FILE")]
    trials: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// A server in this run.
struct TestedServer<'a> {
    name: String,
    tolerant: bool,
    from: ServerAccess<'a>,
}

enum ServerAccess<'a> {
    Script { at: &'a str, kind: &'static ServerKind },
    Real { url: &'a str, log: Option<&'a Path> },
}

/// The right content of the file.
struct RightContent {
    whole: Vec<u8>,
}

impl RightContent {
    /// Whether `bytes` are the file of this server or one of its versions.
    fn matches(&self, server: &TestedServer<'_>, bytes: &[u8]) -> bool {
        let ServerAccess::Script { kind, .. } = &server.from else { return bytes == self.whole };
        if kind.empty().is_some() {
            return bytes.is_empty();
        }
        let other = || bytes.iter().map(|byte| !byte).eq(self.whole.iter().copied());
        let two = kind.has(&super::kinds::Deviation::TwoVersions);
        bytes == self.whole || (two && other())
    }
}

/// Runs all downloads and prints the report.
///
/// # Errors
/// When a tool cannot be started or the server does not answer; a failed download is counted.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let whole = fs::read(&args.content)
        .with_context(|| format!("cannot read {}", args.content.display()))?;
    let right = RightContent { whole };
    let mut tools = args.tools.clone();
    // The report counts files that another tool delivers and `get` does not, so each selected tool must run.
    if let Some(absent) = tools.iter().find(|tool| !tool.is_installed()) {
        bail!("{} is not installed; install it, or select other tools with --tools", absent.name());
    }
    ensure!(!tools.is_empty(), "--tools selects no tool");
    let turn = args.round % tools.len();
    tools.rotate_left(turn);
    let mut tally = DownloadTally::default();
    for server in servers(args)? {
        for tool in &tools {
            let trial = download(args, &server, *tool, &right)?;
            write(args, &trial)?;
            tally.add(trial);
        }
    }
    let mut report = Report::default();
    tally.report(&mut report);
    report.print().context("cannot print the report")
}

fn servers(args: &Args) -> anyhow::Result<Vec<TestedServer<'_>>> {
    if let Some(real) = &args.real {
        let (name, url) = real.split_once('=').context("--real must have the form NAME=URL")?;
        let from = ServerAccess::Real { url, log: args.log.as_deref() };
        return Ok(vec![TestedServer { name: name.to_owned(), tolerant: true, from }]);
    }
    let at = args.at.as_deref().context("--at is required")?.trim_end_matches('/');
    let all = args.kinds.iter().any(|name| name == "all");
    if let Some(name) =
        args.kinds.iter().find(|name| *name != "all" && ServerKind::find(name).is_none())
    {
        bail!("there is no kind {name}; list the kinds with `thalweg-bench load servers kinds`");
    }
    let meant = |kind: &&ServerKind| {
        args.class.is_none_or(|class| kind.class == class)
            && (all || args.kinds.iter().any(|name| name == kind.name))
    };
    let server = |kind: &'static ServerKind| {
        let from = ServerAccess::Script { at, kind };
        TestedServer { name: kind.name.to_owned(), tolerant: kind.tolerant, from }
    };
    Ok(KINDS.iter().filter(meant).map(server).collect())
}

fn download(
    args: &Args,
    server: &TestedServer<'_>,
    tool: Downloader,
    right: &RightContent,
) -> anyhow::Result<DownloadTrial> {
    let place = args.dir.join(format!("{}-{}", server.name, tool.name()));
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let file = place.join("data.bin");
    let (ended, counts) = match server.from {
        ServerAccess::Script { at, kind } => {
            let download = format!("{}/{}-{}", kind.name, args.round, tool.name());
            let ended = tool.run(&format!("{at}/{download}/data.bin"), &file, &args.settings)?;
            (ended, Some(counts::read_counts(at, &download)?))
        }
        ServerAccess::Real { url, log } => {
            let log = log.map(AccessLog::new);
            let ended = tool.run(url, &file, &args.settings)?;
            (ended, log.map(|log| log.counts()))
        }
    };
    let outcome = match ended.code {
        Some(0) => {
            let bytes = fs::read(&file).unwrap_or_default();
            if right.matches(server, &bytes) {
                DownloadResult::Right
            } else {
                DownloadResult::Wrong
            }
        }
        _ => DownloadResult::Failed,
    };
    fs::remove_dir_all(&place)?;
    let counts: Option<DownloadCounts> = counts;
    Ok(DownloadTrial {
        server: server.name.clone(),
        tolerant: server.tolerant,
        tool,
        outcome,
        ended,
        counts,
    })
}

fn write(args: &Args, trial: &DownloadTrial) -> anyhow::Result<()> {
    use std::io::Write as _;
    let Some(file) = &args.trials else { return Ok(()) };
    let mut file = fs::OpenOptions::new().create(true).append(true).open(file)?;
    Ok(writeln!(file, "{}", trial.json())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(kind: &str) -> TestedServer<'static> {
        let kind = ServerKind::find(kind).unwrap();
        let from = ServerAccess::Script { at: "", kind };
        TestedServer { name: String::new(), tolerant: false, from }
    }

    #[test]
    fn a_mixture_of_two_versions_is_wrong() {
        let right = RightContent { whole: vec![1, 2, 3] };
        assert!(right.matches(&server("honest"), &[1, 2, 3]));
        assert!(!right.matches(&server("honest"), &[!1, !2, !3]));
        assert!(right.matches(&server("two-versions"), &[!1, !2, !3]));
        assert!(!right.matches(&server("two-versions"), &[1, 2, !3]));
        assert!(!right.matches(&server("two-versions"), &[!1, !2]));
        assert!(right.matches(&server("empty-416-bare"), &[]));
    }
}
