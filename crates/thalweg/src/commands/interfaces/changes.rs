//! The subcommands of `thalweg interfaces` that change running processes.

use super::InterfaceArgs;
use anyhow::bail;
use clap::{ArgGroup, ValueEnum, builder::RangedU64ValueParser};
use std::time::Duration;
use thalweg_node::config::{
    InterfaceRuleSection, Price, change_policy, parse_cap, parse_price, parse_rate_limit,
};
use thalweg_units::{ByteSize, Rate};
use thalweg_uplinks::interfaces::{Change, ConnectionMethod, PolicyChange, Tier};

/// Arguments of `thalweg interfaces schedule`.
#[derive(clap::Args)]
pub struct ScheduleArgs {
    /// How the interface of the next connection is chosen
    #[arg(value_enum)]
    method: ScheduleMethod,

    #[command(flatten)]
    pub common: InterfaceArgs,
}

/// Arguments of `thalweg interfaces allow`.
#[derive(clap::Args)]
pub struct AllowArgs {
    /// The interface's name
    interface: String,

    /// When it is used
    #[arg(long, value_enum)]
    tier: Option<TierName>,

    /// The most it may carry, both directions together, or `none`
    #[arg(long, value_name = "RATE|none", value_parser = parse_rate_limit)]
    rate_limit: Option<Rate>,

    /// The most it may carry in a month, both directions together, or `none`
    #[arg(long, value_name = "SIZE|none", value_parser = parse_cap)]
    cap: Option<ByteSize>,

    /// The day of the month on which the cap starts anew [default: unchanged, or 1]
    #[arg(long, value_name = "DAY")]
    #[arg(value_parser = RangedU64ValueParser::<u8>::new().range(1..=31))]
    reset_day: Option<u8>,

    /// Whether its traffic costs money: then no probes and no duplicates are sent over it
    #[arg(long, value_name = "true|false")]
    metered: Option<bool>,

    /// Whether probes and duplicates are allowed although it is metered
    #[arg(long, value_name = "true|false")]
    spend: Option<bool>,

    /// What its traffic costs, e.g. `5 / GB`, or `none`
    #[arg(long, value_name = "PRICE|none", value_parser = parse_price)]
    price: Option<Price>,

    /// Whether it is used although the default route is a tunnel (a VPN), which it then bypasses
    #[arg(long, value_name = "true|false")]
    beside_tunnel: Option<bool>,

    #[command(flatten)]
    pub common: InterfaceArgs,
}

/// As in the settings.
#[derive(Clone, Copy, ValueEnum)]
enum ScheduleMethod {
    /// Always the interface of the default route
    OnlyOne,
    /// Each in turn
    RoundRobin,
    /// Each in turn, in proportion to its rate
    WeightedRoundRobin,
    /// The one on which the connection is expected to finish first
    MaximumThroughput,
}

/// As in the settings.
#[derive(Clone, Copy, ValueEnum)]
enum TierName {
    /// Always
    Primary,
    /// While the primary ones are fully loaded or absent
    Secondary,
    /// While no other is available
    Backup,
    /// Never
    Never,
}

impl ScheduleArgs {
    pub fn change(&self) -> Change {
        Change::Schedule(match self.method {
            ScheduleMethod::OnlyOne => ConnectionMethod::OnlyOne,
            ScheduleMethod::RoundRobin => ConnectionMethod::RoundRobin,
            ScheduleMethod::WeightedRoundRobin => ConnectionMethod::WeightedRoundRobin,
            ScheduleMethod::MaximumThroughput => ConnectionMethod::MaximumThroughput,
        })
    }
}

impl AllowArgs {
    /// The requested change.
    ///
    /// # Errors
    /// If it changes nothing, or the name cannot be an interface's.
    pub fn change(&self) -> anyhow::Result<Change> {
        let tier = self.tier.map(|tier| match tier {
            TierName::Primary => Tier::Primary,
            TierName::Secondary => Tier::Secondary,
            TierName::Backup => Tier::Backup,
            TierName::Never => Tier::Never,
        });
        let change = PolicyChange {
            name: self.interface.clone(),
            tier,
            rate_limit: self.rate_limit,
            cap: self.cap,
            reset_day: self.reset_day,
            metered: self.metered,
            spend: self.spend,
            price: self.price.map(Price::per_gigabyte),
            beside_tunnel: self.beside_tunnel,
        };
        let Some(change) = change_policy(change).map_err(anyhow::Error::msg)? else {
            bail!(
                "this changes nothing: give --tier, --rate-limit, --cap, --reset-day, --metered, \
                 --spend, --price or --beside-tunnel"
            );
        };
        Ok(change)
    }
}

/// Arguments of `thalweg interfaces rule`.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("what").required(true).args(["only", "prefer", "avoid", "remove"]))]
pub struct RuleArgs {
    /// The program's name; a final `*` matches any ending
    #[arg(long, conflicts_with = "remove")]
    process: Option<String>,

    /// The destination's port
    #[arg(long, conflicts_with = "remove")]
    port: Option<u16>,

    /// The destination's name or address; `*.example.org` matches all names below it
    #[arg(long, value_name = "HOST", conflicts_with = "remove")]
    destination: Option<String>,

    /// Use only these interfaces
    #[arg(long, value_name = "INTERFACE,…", value_delimiter = ',')]
    only: Vec<String>,

    /// Use these interfaces first
    #[arg(long, value_name = "INTERFACE,…", value_delimiter = ',')]
    prefer: Vec<String>,

    /// Do not use these interfaces
    #[arg(long, value_name = "INTERFACE,…", value_delimiter = ',')]
    avoid: Vec<String>,

    /// The rule's position, from 1; the first rule that matches applies [default: the last]
    #[arg(long, value_name = "NUMBER", conflicts_with = "remove")]
    at: Option<usize>,

    /// Remove the rule with this number; `thalweg interfaces status` lists them
    #[arg(long, value_name = "NUMBER")]
    remove: Option<usize>,

    #[command(flatten)]
    pub common: InterfaceArgs,
}

impl RuleArgs {
    /// The requested change.
    ///
    /// # Errors
    /// If the rule is invalid.
    pub fn change(&self) -> anyhow::Result<Change> {
        if let Some(number) = self.remove {
            return Ok(Change::Unrule(number));
        }
        let way = InterfaceRuleSection {
            process: self.process.clone(),
            port: self.port,
            destination: self.destination.clone(),
            only: self.only.clone(),
            prefer: self.prefer.clone(),
            avoid: self.avoid.clone(),
        };
        let rule = way.checked().map_err(anyhow::Error::msg)?;
        Ok(Change::Rule { at: self.at, rule })
    }
}

/// Arguments of `thalweg interfaces set`.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["affinity", "near"]))]
pub struct SetArgs {
    /// How long a destination stays on its interface after its last connection; `0 s`: not at all
    #[arg(long, value_name = "TIME", value_parser = time)]
    affinity: Option<Duration>,

    /// Whether connections to hosts in this host's own networks are assigned too
    #[arg(long, value_name = "true|false")]
    near: Option<bool>,

    #[command(flatten)]
    pub common: InterfaceArgs,
}

/// Parses a time as in the settings.
fn time(text: &str) -> Result<Duration, String> {
    thalweg_units::parse_duration(text).map_err(|e| e.to_string())
}

impl SetArgs {
    /// The requested changes, in order.
    pub fn changes(&self) -> Vec<Change> {
        let affinity = self.affinity.map(Change::Affinity);
        affinity.into_iter().chain(self.near.map(Change::Near)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        allow: AllowArgs,
    }

    #[test]
    fn options_that_are_not_given_change_nothing() {
        let change = |args: &str| {
            Cli::parse_from(std::iter::once("t").chain(args.split(' '))).allow.change()
        };
        let of = |tier, rate_limit, cap| {
            let (name, same) = ("lte0".to_owned(), PolicyChange::default());
            Change::Policy(PolicyChange { name, tier, rate_limit, cap, ..same })
        };
        assert_eq!(change("lte0 --tier backup").unwrap(), of(Some(Tier::Backup), None, None));
        let none = change("lte0 --rate-limit none --cap none").unwrap();
        assert_eq!(none, of(None, Some(Rate::ZERO), Some(ByteSize::ZERO)));
        assert!(Cli::try_parse_from(["t", "lte0", "--cap", "0 B"]).is_err());
        assert!(Cli::try_parse_from(["t", "lte0", "--rate-limit", "0 bit/s"]).is_err());
        assert!(change("lte0").is_err());
        assert!(change("a-name-of-no-interface --tier never").is_err());
    }
}
