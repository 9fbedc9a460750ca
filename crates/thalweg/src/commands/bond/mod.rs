//! `thalweg bond`: this host's interfaces, why connections went where they went, and changes to
//! processes that run.

mod show;

use super::{
    here::{self, Place},
    remembered,
    text::say,
    uplinks,
};
use anyhow::{Context as _, bail};
use clap::{Subcommand, ValueEnum, builder::RangedU64ValueParser};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use thalweg_node::interfaces::{Cap, Change, ConnectionMethod, Tier, Uplinks, ask, report};
use thalweg_units::{ByteSize, Rate};

const HELP: &str = "\
  thalweg bond status                            # interfaces, programs, the last connections
  thalweg bond status --json | jq '.processes[].interfaces'
  thalweg bond schedule round-robin              # in the proxies that run; until they end
  thalweg bond allow lte0 --tier backup --cap '10 GB' --reset-day 5
  thalweg bond allow lte0 --rate-limit none

What holds for good is written in the settings: [interfaces], see `thalweg config example`.

Exit codes: 0 done; 1 no process was there to be changed, or it cannot be read; 2 wrong usage.";

/// Arguments of `thalweg bond`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    sub: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Show interfaces, what programs' connections move, and why the last ones went where they went
    Status(Status),
    /// Have running proxies assign connections by another method
    Schedule(Schedule),
    /// Change what running proxies may do with an interface
    Allow(Allow),
}

/// What each subcommand has.
#[derive(clap::Args)]
struct Common {
    /// The history that the proxies were given, if they were given one
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    #[command(flatten)]
    place: Place,
}

#[derive(clap::Args)]
struct Status {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Settings' file, for what is shown while nothing runs [default: the user's own]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Schedule {
    /// Who gets the next connection
    #[arg(value_enum)]
    method: Method,

    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Allow {
    /// The interface's name
    interface: String,

    /// When it is used
    #[arg(long, value_enum)]
    tier: Option<TierName>,

    /// Its most, both ways together, or `none`
    #[arg(long, value_name = "RATE|none", value_parser = rate)]
    rate_limit: Option<Rate>,

    /// Its most in a month, both ways together, or `none`
    #[arg(long, value_name = "SIZE|none", value_parser = size)]
    cap: Option<ByteSize>,

    /// The day on which a month begins
    #[arg(long, value_name = "DAY", default_value_t = 1, requires = "cap")]
    #[arg(value_parser = RangedU64ValueParser::<u8>::new().range(1..=31))]
    reset_day: u8,

    /// Whether its bytes cost: no probes, and nothing twice
    #[arg(long, value_name = "true|false")]
    metered: Option<bool>,

    #[command(flatten)]
    common: Common,
}

/// As in the settings.
#[derive(Clone, Copy, ValueEnum)]
enum Method {
    /// The system's first choice alone
    OnlyOne,
    /// In turn
    RoundRobin,
    /// In turn, as often as each is fast
    WeightedRoundRobin,
    /// Where all is done first
    MaximumThroughput,
}

/// As in the settings.
#[derive(Clone, Copy, ValueEnum)]
enum TierName {
    /// Always
    Primary,
    /// While the primary ones are full, or none is there
    Secondary,
    /// While no other is there
    Backup,
    /// Not at all
    Never,
}

/// No limit reads as zero: [`Change::Policy`].
fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "none" => Ok(Rate::ZERO),
        text => text.parse().map_err(|e| format!("{e}, or `none`")),
    }
}

fn size(text: &str) -> Result<ByteSize, String> {
    match text {
        "none" => Ok(ByteSize::ZERO),
        text => text.parse().map_err(|e| format!("{e}, or `none`")),
    }
}

impl Schedule {
    fn change(&self) -> Change {
        Change::Schedule(match self.method {
            Method::OnlyOne => ConnectionMethod::OnlyOne,
            Method::RoundRobin => ConnectionMethod::RoundRobin,
            Method::WeightedRoundRobin => ConnectionMethod::WeightedRoundRobin,
            Method::MaximumThroughput => ConnectionMethod::MaximumThroughput,
        })
    }
}

impl Allow {
    /// # Errors
    /// Nothing is changed.
    fn change(&self) -> anyhow::Result<Change> {
        let says_nothing = self.tier.is_none() && self.rate_limit.is_none() && self.cap.is_none();
        if says_nothing && self.metered.is_none() {
            bail!("this changes nothing: give --tier, --rate-limit, --cap or --metered");
        }
        let tier = self.tier.map(|tier| match tier {
            TierName::Primary => Tier::Primary,
            TierName::Secondary => Tier::Secondary,
            TierName::Backup => Tier::Backup,
            TierName::Never => Tier::Never,
        });
        let cap = self.cap.map(|cap| Cap { bytes: cap.as_bytes(), reset_day: self.reset_day });
        let (name, rate_limit) = (self.interface.clone(), self.rate_limit);
        Ok(Change::Policy { name, tier, rate_limit, cap, metered: self.metered })
    }
}

impl Common {
    /// Where what is known of interfaces is kept, and processes answer beside it.
    fn file(&self) -> anyhow::Result<PathBuf> {
        let history = remembered::file(self.history.as_deref(), &self.place);
        history.map(|file| uplinks::beside(&file)).context(
            "there is no place where anything would be kept: neither a state directory nor HOME",
        )
    }
}

/// Runs the command.
///
/// # Errors
/// What cannot be read, or that nothing runs that could be changed.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match &args.sub {
        Sub::Status(status) => {
            let file = status.common.file()?;
            let processes = answers(&file, &Change::Show)?;
            let said = match processes.is_empty() {
                false => json!({ "processes": processes }),
                true => json!({ "processes": [], "kept": kept(status, &file)? }),
            };
            say(&if status.json { format!("{said}\n") } else { show::text(&said) })?;
        }
        Sub::Schedule(schedule) => change(&schedule.common, &schedule.change())?,
        Sub::Allow(allow) => change(&allow.common, &allow.change()?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn answers(file: &Path, change: &Change) -> anyhow::Result<Vec<Value>> {
    let at = uplinks::sockets(file);
    here::block_on(async {
        ask(&at, change).await.with_context(|| format!("cannot read {}", at.display()))
    })
}

/// What is known while nothing runs.
fn kept(status: &Status, file: &Path) -> anyhow::Result<Value> {
    let settings = here::settings(status.config.as_deref())?.interfaces.settings();
    let kept = Uplinks::open(settings, Some(file.to_owned()));
    let kept = kept.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(report(&kept))
}

fn change(common: &Common, change: &Change) -> anyhow::Result<()> {
    let file = common.file()?;
    let said = answers(&file, change)?;
    if said.is_empty() {
        bail!(
            "no proxy runs that could be changed; for those to come write it in the settings, \
             [interfaces] (`thalweg config example`)"
        );
    }
    said.iter().try_for_each(|said| match said["error"].as_str() {
        Some(why) => bail!("process {} refused: {why}", said["pid"]),
        None => say(&format!("changed: {}\n", show::process(said))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        allow: Allow,
    }

    #[test]
    fn what_is_not_said_stays() {
        let change = |args: &str| {
            Cli::parse_from(std::iter::once("t").chain(args.split(' '))).allow.change()
        };
        let of = |tier, rate_limit, cap| Change::Policy {
            name: "lte0".to_owned(),
            tier,
            rate_limit,
            cap,
            metered: None,
        };
        assert_eq!(change("lte0 --tier backup").unwrap(), of(Some(Tier::Backup), None, None));
        let none = change("lte0 --rate-limit none --cap none").unwrap();
        let no_cap = Some(Cap { bytes: 0, reset_day: 1 });
        assert_eq!(none, of(None, Some(Rate::ZERO), no_cap));
        assert!(change("lte0").is_err());
    }
}
