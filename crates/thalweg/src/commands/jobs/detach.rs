//! `--detach`: gives a transfer to the node of this host instead of running it here.

use super::{PriorityName, table};
use crate::commands::{
    host::{self, StateDir},
    text::say,
};
use anyhow::Context as _;
use clap::ArgMatches;
use serde_json::json;
use std::process::ExitCode;
use thalweg_console::note;
use thalweg_jobs::{DailyWindow, JobRequest, Timestamp, parse_start_time};

/// The options of a transfer that runs in the node.
#[derive(clap::Args, Clone, Debug)]
pub struct QueueOptions {
    /// Give the transfer to this host's node and return; `thalweg jobs` shows it
    #[arg(long, help_heading = "Queue")]
    detach: bool,
    /// With --detach: the priority in the queue
    #[arg(long, requires = "detach", value_name = "PRIORITY", help_heading = "Queue")]
    priority: Option<PriorityName>,
    /// With --detach: do not start before this time, HH:MM or YYYY-MM-DDTHH:MM
    #[arg(long, requires = "detach", value_name = "TIME", value_parser = start_time, help_heading = "Queue")]
    at: Option<Timestamp>,
    /// With --detach: run only in this daily window; outside it the transfer pauses
    #[arg(long, requires = "detach", value_name = "HH:MM-HH:MM", help_heading = "Queue")]
    between: Option<DailyWindow>,
}

/// The options of [`QueueOptions`], and whether a value follows. `--json` is about the reply here; jobs always have it.
const OPTIONS: [(&str, bool); 5] = [
    ("--detach", false),
    ("--priority", true),
    ("--at", true),
    ("--between", true),
    ("--json", false),
];

fn start_time(text: &str) -> Result<Timestamp, thalweg_jobs::StartTimeError> {
    parse_start_time(text, Timestamp::now(), &thalweg_jobs::TimeZone::system())
}

/// Gives the command to the node, if `--detach` asks for it; `None` if not. `command` has the matches of the command.
///
/// # Errors
/// If the node refuses it.
pub fn detach(command: &ArgMatches) -> Option<anyhow::Result<ExitCode>> {
    match command.try_get_one::<bool>("detach") {
        Ok(Some(true)) => Some(submit(command)),
        // A command with subcommands, such as `stream`.
        _ => command.subcommand().and_then(|(_, command)| detach(command)),
    }
}

fn submit(command: &ArgMatches) -> anyhow::Result<ExitCode> {
    let arguments: Result<Vec<String>, _> =
        std::env::args_os().skip(1).map(std::ffi::OsString::into_string).collect();
    let arguments = arguments.map_err(|argument| {
        anyhow::anyhow!("{} is not UTF-8, which a job's command line must be", argument.display())
    })?;
    let as_json = matches!(command.try_get_one::<bool>("json"), Ok(Some(true)));
    let priority = one::<PriorityName>(command, "priority").unwrap_or(PriorityName::Normal);
    let request = JobRequest {
        arguments: without_queue_options(&arguments),
        directory: std::env::current_dir().context("cannot find the working directory")?,
        priority: priority.into(),
        at: one(command, "at"),
        between: one(command, "between"),
    };
    let state = StateDir::from(one(command, "state")).open()?;
    host::block_on(async {
        let Some(node) = host::daemon(&state).await? else {
            note!(
                "thalweg: no node runs on this host to run the transfer: start one with `thalweg \
                 node`, or leave --detach out"
            );
            return Ok(crate::commands::exit::Code::Network.into());
        };
        let job = node.add_job(&request).await?;
        match as_json {
            true => say(&format!("{}\n", json!(job)))?,
            false => say(&format!(
                "{}; `thalweg jobs watch {}` follows it\n",
                table::line(&job),
                job.id
            ))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn one<T: Clone + Send + Sync + 'static>(command: &ArgMatches, id: &str) -> Option<T> {
    command.try_get_one::<T>(id).ok().flatten().cloned()
}

/// The command line of the transfer itself.
fn without_queue_options(arguments: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            kept.push(argument.clone());
            kept.extend(rest.cloned());
            break;
        }
        let name = argument.split('=').next().unwrap_or_default();
        match OPTIONS.iter().find(|(option, _)| *option == name) {
            Some((_, true)) if !argument.contains('=') => _ = rest.next(),
            Some(_) => {}
            None => kept.push(argument.clone()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queues_options_are_left_out_of_the_job() {
        for (line, wanted) in [
            ("get --detach URL --json -o x", "get URL -o x"),
            ("get URL --at 23:00 --between=23:00-06:00 --priority low --detach", "get URL"),
            ("get URL --detach -- --detach", "get URL -- --detach"),
        ] {
            let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(without_queue_options(&words(line)), words(wanted));
        }
    }
}
