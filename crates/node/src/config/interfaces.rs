//! `[interfaces]`: how this host's interfaces may be used, and how connections are assigned to them.

use super::{
    Problem,
    text::{self, Text},
};
use serde::Deserialize;
use std::{str::FromStr, time::Duration};
use thalweg_bond::{Action, Cap, ConnectionMethod, Policy, Rule, Rules, Tier};
use thalweg_units::{ByteSize, Rate};
use thalweg_uplinks::interfaces::{Change, PolicyChange, ProbeServer, ProbeSettings, Settings};

/// The longest name of an interface (`IFNAMSIZ` less the zero).
const LONGEST_NAME: usize = 15;

/// The settings of [`thalweg_uplinks::interfaces`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InterfacesSection {
    /// How an interface is chosen for a connection.
    pub schedule: ConnectionMethod,
    /// How long after its last connection a destination stays with its interface; zero: it does not.
    #[serde(deserialize_with = "text::one")]
    pub affinity: Duration,
    /// Whether connections to hosts of this host's own networks are assigned as well.
    pub near: bool,
    /// Files, `http://…`, of which a part is fetched over interfaces without traffic.
    #[serde(deserialize_with = "text::list")]
    pub probe: Vec<ProbeServer>,
    /// The most bytes that probes may cost in a day.
    #[serde(deserialize_with = "text::one")]
    pub probe_budget: ByteSize,
    /// Policies of interfaces, by name.
    pub policy: Vec<PolicySection>,
    /// Rules for single programs and destinations; the first match counts.
    pub rule: Vec<InterfaceRuleSection>,
}

impl Default for InterfacesSection {
    fn default() -> Self {
        let Settings { schedule, affinity, near, probing, .. } = Settings::default();
        let ProbeSettings { servers: probe, per_day: probe_budget } = probing;
        let (policy, rule) = Default::default();
        Self { schedule, affinity, near, probe, probe_budget, policy, rule }
    }
}

/// `[[interfaces.policy]]`: see [`Policy`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySection {
    /// The interface's name.
    pub name: String,
    /// When it is used.
    pub tier: Tier,
    /// Its highest rate, both directions together.
    #[serde(deserialize_with = "text::option")]
    pub rate_limit: Option<Rate>,
    /// Its most bytes in a month, both directions together.
    #[serde(deserialize_with = "text::option")]
    pub cap: Option<ByteSize>,
    /// The day on which a month begins, from 1.
    pub reset_day: Option<u8>,
    /// Whether its bytes cost.
    pub metered: bool,
    /// Whether it may be probed and carry second copies nevertheless.
    pub spend: bool,
    /// The price of its bytes.
    #[serde(deserialize_with = "text::one")]
    pub price: Price,
    /// Whether it is used although a tunnel (a VPN) has the default route; it then bypasses the tunnel.
    pub beside_tunnel: bool,
}

/// `[[interfaces.rule]]`: see [`Rule`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InterfaceRuleSection {
    /// The program's name; a `*` at its end matches anything.
    pub process: Option<String>,
    /// The destination's port.
    pub port: Option<u16>,
    /// The destination's name or address; `*.example.org` matches all names below.
    pub destination: Option<String>,
    /// The only interfaces to use.
    #[serde(deserialize_with = "text::list")]
    pub only: Vec<String>,
    /// The interfaces to use first.
    #[serde(deserialize_with = "text::list")]
    pub prefer: Vec<String>,
    /// The interfaces not to use.
    #[serde(deserialize_with = "text::list")]
    pub avoid: Vec<String>,
}

/// The price of a gigabyte, in millionths of the user's currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price(u64);

impl Price {
    /// The price of a gigabyte.
    pub fn per_gigabyte(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text)
    }
}

impl Text for Price {
    const EXPECTED: &'static str = "a price per gigabyte, in any currency, e.g. \"5 / GB\"";

    fn read(text: &str) -> Result<Self, String> {
        let number = text.trim().strip_suffix("GB").map(str::trim_end);
        let number = number.and_then(|rest| rest.strip_suffix('/')).map(str::trim);
        let price = number.and_then(|number| number.parse::<f64>().ok());
        match price.filter(|price| (0.0..1e9).contains(price)) {
            Some(price) => Ok(Self((price * 1e6).round() as u64)),
            None => Err(format!("`{}` is not {}", text.escape_debug(), Self::EXPECTED)),
        }
    }
}

impl InterfacesSection {
    /// The settings of the table of interfaces.
    pub fn settings(&self) -> Settings {
        let policy = |section: &PolicySection| (section.name.clone(), section.policy());
        Settings {
            schedule: self.schedule,
            affinity: self.affinity,
            near: self.near,
            policies: self.policy.iter().map(policy).collect(),
            rules: Rules(self.rule.iter().filter_map(InterfaceRuleSection::rule).collect()),
            probing: ProbeSettings { servers: self.probe.clone(), per_day: self.probe_budget },
        }
    }
}

impl PolicySection {
    fn policy(&self) -> Policy {
        let reset_day = self.reset_day.unwrap_or(1);
        Policy {
            tier: self.tier,
            rate_limit: self.rate_limit,
            cap: self.cap.map(|cap| Cap { bytes: cap.as_bytes(), reset_day }),
            metered: self.metered,
            spend: self.spend,
            price: self.price.per_gigabyte(),
            beside_tunnel: self.beside_tunnel,
        }
    }
}

impl InterfaceRuleSection {
    /// The rule that the section describes.
    ///
    /// # Errors
    /// Why the section makes no sense.
    pub fn checked(&self) -> Result<Rule, String> {
        let mut problems = Vec::new();
        check_rule("rule", self, &mut problems);
        match (problems.into_iter().next(), self.rule()) {
            (None, Some(rule)) => Ok(rule),
            (Some(problem), _) => Err(problem.to_string()),
            (None, None) => Err("the rule names no interfaces".to_owned()),
        }
    }

    fn rule(&self) -> Option<Rule> {
        let mut actions = self.actions();
        let action = actions.pop().filter(|_| actions.is_empty())?;
        let (process, destination) = (self.process.clone(), self.destination.clone());
        Some(Rule { process, port: self.port, destination, action })
    }

    fn actions(&self) -> Vec<Action> {
        let lists = [
            (&self.only, Action::Only as fn(Vec<String>) -> Action),
            (&self.prefer, Action::Prefer),
            (&self.avoid, Action::Avoid),
        ];
        let named = lists.into_iter().filter(|(names, _)| !names.is_empty());
        named.map(|(names, action)| action(names.clone())).collect()
    }
}

/// Parses a rate limit of a [`PolicyChange`]: a rate, or `none`, which becomes zero.
///
/// # Errors
/// If it is no rate, or zero.
pub fn parse_rate_limit(text: &str) -> Result<Rate, String> {
    match text {
        "none" => Ok(Rate::ZERO),
        text => match text.parse().map_err(|e| format!("{e}, or `none`"))? {
            Rate::ZERO => Err("at a rate of 0 nothing is sent; to stop using the interface, set \
                               its tier to `never`"
                .into()),
            rate => Ok(rate),
        },
    }
}

/// Parses a cap of a [`PolicyChange`]: a size, or `none`, which becomes zero.
///
/// # Errors
/// If it is no size, or zero.
pub fn parse_cap(text: &str) -> Result<ByteSize, String> {
    match text {
        "none" => Ok(ByteSize::ZERO),
        text => match text.parse().map_err(|e| format!("{e}, or `none`"))? {
            ByteSize::ZERO => Err("with a cap of 0 nothing is sent; to stop using the interface, \
                                   set its tier to `never`"
                .into()),
            size => Ok(size),
        },
    }
}

/// Parses a price of a [`PolicyChange`]: a price, or `none`, which becomes zero.
///
/// # Errors
/// If it is no price.
pub fn parse_price(text: &str) -> Result<Price, String> {
    match text {
        "none" => Ok(Price::default()),
        text => text.parse().map_err(|e| format!("{e}, or `none`")),
    }
}

/// The change of an interface's policy; `None` if it would change nothing.
///
/// # Errors
/// If its name cannot be an interface's, or its day is in no month.
pub fn change_policy(change: PolicyChange) -> Result<Option<Change>, String> {
    if let Some(what) = name_problem(&change.name) {
        return Err(format!("`{}`: {what}", change.name.escape_debug()));
    }
    if change.reset_day.is_some_and(|day| !(1..=31).contains(&day)) {
        return Err("the cap starts anew on a day of the month, from 1 to 31".to_owned());
    }
    let nothing = PolicyChange { name: change.name.clone(), ..PolicyChange::default() };
    Ok((change != nothing).then_some(Change::Policy(change)))
}

/// Reports values that are well-formed but make no sense.
pub(super) fn check(interfaces: &InterfacesSection, problems: &mut Vec<Problem>) {
    for (i, policy) in interfaces.policy.iter().enumerate() {
        let key = format!("interfaces.policy.{}", i + 1);
        let earlier = &interfaces.policy[..i];
        if earlier.iter().any(|other| other.name == policy.name) {
            let what = format!("`{}` already has a policy; write all settings there", policy.name);
            problems.push(Problem::of(format!("{key}.name"), what));
        }
        check_policy(&key, policy, problems);
    }
    for (i, rule) in interfaces.rule.iter().enumerate() {
        check_rule(&format!("interfaces.rule.{}", i + 1), rule, problems);
    }
}

fn check_policy(key: &str, policy: &PolicySection, problems: &mut Vec<Problem>) {
    let mut tell = |part: &str, what: &str| {
        problems.push(Problem::of(format!("{key}.{part}"), what));
    };
    if let Some(what) = name_problem(&policy.name) {
        tell("name", what);
    }
    if policy.rate_limit == Some(Rate::ZERO) {
        tell(
            "rate_limit",
            "a rate of 0 sends nothing; to stop using the interface, write tier = \"never\"",
        );
    }
    if policy.cap == Some(ByteSize::ZERO) {
        tell(
            "cap",
            "a cap of 0 sends nothing; to stop using the interface, write tier = \"never\"",
        );
    }
    if policy.reset_day.is_some_and(|day| !(1..=31).contains(&day)) {
        tell(
            "reset_day",
            "must be a day of the month, from 1 to 31 (in a shorter month, its last \
                           day)",
        );
    }
    if policy.reset_day.is_some() && policy.cap.is_none() {
        tell("reset_day", "it has no effect without `cap`; add e.g. cap = \"10 GB\"");
    }
}

fn check_rule(key: &str, rule: &InterfaceRuleSection, problems: &mut Vec<Problem>) {
    if rule.actions().len() != 1 {
        let what = "a rule needs exactly one of `only`, `prefer` and `avoid`, with the names of \
                    interfaces";
        problems.push(Problem::of(key, what));
    }
    let inner = |text: &str| text.trim_end_matches('*').contains('*');
    if rule.process.as_deref().is_some_and(inner) {
        let what = "a `*` is allowed only at the end of a program's name, e.g. \"zoom*\"";
        problems.push(Problem::of(format!("{key}.process"), what));
    }
    let below = |text: &str| text.strip_prefix("*.").unwrap_or(text).contains('*');
    if rule.destination.as_deref().is_some_and(below) {
        let what = "a `*` is allowed only at the beginning of a host's name, e.g. \
                    \"*.example.org\"";
        problems.push(Problem::of(format!("{key}.destination"), what));
    }
    let names = rule.only.iter().chain(&rule.prefer).chain(&rule.avoid);
    if let Some(what) = names.filter_map(|name| name_problem(name)).next() {
        problems.push(Problem::of(key, what));
    }
}

fn name_problem(name: &str) -> Option<&'static str> {
    let is_name = (1..=LONGEST_NAME).contains(&name.len()) && !name.contains(['/', ' ']);
    (!is_name).then_some("not the name of an interface, e.g. \"eth0\"; `ip link` lists them")
}
