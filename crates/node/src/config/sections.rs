//! The other sections of the settings.

use super::{OracleMeasureSection, QuotaSection, text};
use ipnet::IpNet;
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};
use thalweg_wire::mesh::{LegKind, PORT, PortRange, Rule, Tag, Terms};

/// `[socks]`: SOCKS5 for the programs of this host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SocksSection {
    /// The loopback address to listen at; absent: no SOCKS5.
    #[serde(deserialize_with = "text::option")]
    pub listen: Option<SocketAddr>,
    /// Routes by name, of which the first that works is used; empty: directly from this host.
    #[serde(deserialize_with = "text::list")]
    pub via: Vec<String>,
    /// The kind of the legs to the relays.
    pub legs: LegKind,
    /// Tags of relays that routes avoid.
    #[serde(deserialize_with = "text::list")]
    pub avoid: BTreeSet<Tag>,
    /// How long a connection may make no progress in either direction.
    #[serde(deserialize_with = "text::one")]
    pub idle: Duration,
}

impl Default for SocksSection {
    fn default() -> Self {
        Self {
            listen: None,
            via: Vec::new(),
            legs: LegKind::Sealed,
            avoid: BTreeSet::new(),
            idle: Duration::from_secs(600),
        }
    }
}

impl SocksSection {
    /// The terms for each relay.
    pub fn terms(&self) -> Terms {
        Terms { leg: self.legs, avoid: self.avoid.clone() }
    }
}

/// `[metrics]`: `GET /metrics` for Prometheus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSection {
    /// The loopback address to listen at; absent: there are no metrics. Clients are not authenticated.
    #[serde(deserialize_with = "text::option")]
    pub listen: Option<SocketAddr>,
}

/// `[api]`: the API and the page on loopback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiSection {
    #[serde(deserialize_with = "text::one")]
    pub listen: ApiListen,
}

/// Where the API on loopback listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiListen {
    /// Nowhere: there is only the socket.
    Off,
    /// At this loopback address.
    At(SocketAddr),
}

impl ApiListen {
    /// The address, unless it is off.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(address) => Some(address),
        }
    }
}

impl Default for ApiListen {
    /// The port beside the mesh's.
    fn default() -> Self {
        Self::At((Ipv4Addr::LOCALHOST, PORT + 1).into())
    }
}

/// `[jobs]`: the queue of transfers that this node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobsSection {
    /// The most jobs that run at once.
    pub parallel: usize,
    /// The most jobs that have not ended.
    pub max_open: usize,
    /// The most ended jobs that are kept.
    pub max_ended: usize,
}

impl Default for JobsSection {
    fn default() -> Self {
        // As many as aria2 and rclone run at once by default, about.
        Self { parallel: 3, max_open: 10_000, max_ended: 1000 }
    }
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `event=closed client=…`
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl From<LogFormat> for thalweg_base::log::LogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// The settings of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    /// The format of its lines.
    pub format: LogFormat,
}

/// `[oracle]`: the settings of the oracle; other hosts ignore them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OracleSection {
    /// How long a roster is valid without the oracle.
    #[serde(deserialize_with = "text::one")]
    pub validity: Duration,
    /// How long a join token is valid, unless `thalweg mesh token --valid` says otherwise.
    #[serde(deserialize_with = "text::one")]
    pub token_validity: Duration,
    /// The database for the oracle's state; absent: a file in its directory.
    #[serde(deserialize_with = "text::option")]
    pub database: Option<DatabaseUrl>,
    /// A file with the password, so that it is not in the settings.
    pub database_password_file: Option<PathBuf>,
    /// How the mesh is measured.
    pub measure: OracleMeasureSection,
    /// The mesh's rules, in order.
    pub rule: Vec<RuleSection>,
}

/// A PostgreSQL database's URL. May hold a password, so its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// The URL with its secrets.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl")
    }
}

impl FromStr for DatabaseUrl {
    type Err = &'static str;

    /// Checks only the beginning; the rest is parsed where it is used.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            true => Ok(Self(text.to_owned())),
            false => Err("a database's URL begins with postgres://, e.g. \
                          \"postgres://thalweg@db.example/thalweg\"; without `database`, the state \
                          is kept in a file"),
        }
    }
}

impl Default for OracleSection {
    fn default() -> Self {
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(24 * 3600));
        Self {
            validity: 7 * day,
            token_validity: hour,
            database: None,
            database_password_file: None,
            measure: OracleMeasureSection::default(),
            rule: Vec::new(),
        }
    }
}

impl OracleSection {
    /// The rules in the form of a roster's.
    pub fn rules(&self) -> Vec<Rule> {
        self.rule.iter().map(Rule::from).collect()
    }
}

/// `[[oracle.rule]]`: see [`Rule`]; every key is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSection {
    /// The tag of the clients that the rule applies to; absent: all.
    #[serde(deserialize_with = "text::option")]
    pub client: Option<Tag>,
    /// The tag of the relays that the rule applies to; absent: all.
    #[serde(deserialize_with = "text::option")]
    pub relay: Option<Tag>,
    /// Networks to which these clients are not connected.
    #[serde(deserialize_with = "text::list")]
    pub deny_to: Vec<IpNet>,
    /// The only ports to which they are connected; empty: any.
    #[serde(deserialize_with = "text::list")]
    pub ports: Vec<PortRange>,
    /// Tags of relays that do not serve them.
    #[serde(deserialize_with = "text::list")]
    pub avoid: BTreeSet<Tag>,
    /// What each of them may use at one relay.
    pub quota: QuotaSection,
}

impl From<&RuleSection> for Rule {
    fn from(rule: &RuleSection) -> Self {
        Self {
            client: rule.client.clone(),
            relay: rule.relay.clone(),
            deny_to: rule.deny_to.clone(),
            ports: rule.ports.clone(),
            avoid: rule.avoid.clone(),
            quota: rule.quota.into(),
        }
    }
}
