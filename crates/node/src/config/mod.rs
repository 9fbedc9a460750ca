//! The settings of a node: one TOML file, every value with its unit.
//!
//! All keys have defaults, so that a node runs without a file. Unknown keys are refused with the nearest known name,
//! and all problems are reported at once, each with its line and column. [`Config::example`] explains all keys.

mod bond;
mod carrier;
mod cast;
mod changes;
mod check;
mod default_paths;
mod drop_box;
mod files;
mod interfaces;
mod measure;
mod oracle_measure;
mod problem;
mod read;
mod relay;
mod sections;
mod stream;
mod text;

pub use bond::BondSection;
pub use carrier::{CarrierSection, LegsChoice};
pub use cast::{CastSection, InboxSection};
pub use changes::{Applies, Change};
pub use default_paths::{NoDefaultPath, config_file, state_directory};
pub use drop_box::DropBoxSection;
pub use files::{AcceptSection, FilesSection, OfferSection};
pub use interfaces::{
    InterfaceRuleSection, InterfacesSection, PolicySection, Price, change_policy, parse_cap,
    parse_price, parse_rate_limit,
};
pub use measure::MeasureSection;
pub use oracle_measure::{OracleMeasureSection, ScheduleName, Share};
pub use problem::{ConfigError, Problem};
pub use relay::{QuotaSection, RelaySection};
pub use sections::{
    ApiListen, ApiSection, DatabaseUrl, JobsSection, LogFormat, LogSection, MetricsSection,
    OracleSection, RuleSection, SocksSection,
};
pub use stream::{PaceChoice, StreamSection, TranscoderSection};

use serde::Deserialize;
use std::{
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};
use thalweg_mesh::reach::ReachMode;
use thalweg_wire::mesh::PORT;

/// The beginning of [`Config::template`].
const TEMPLATE_HEAD: &str = "\
# Thalweg: the settings of a node.
#
# Every key is optional. Lines such as `# key = value` show the defaults, or an example if a key has no default: remove
# the `# ` and change the value. Values have a unit: \"5 s\", \"40 Mbit/s\", \"64 kB\". `thalweg config check` reports all
# mistakes, `thalweg config reload` applies changes while the node runs.

";

/// The settings of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The addresses of the mesh's port; by default all addresses of both families.
    #[serde(deserialize_with = "text::list")]
    pub listen: Vec<SocketAddr>,
    /// Whether relays lead others to this node, because they cannot dial it.
    pub reach: ReachMode,
    pub relay: RelaySection,
    pub measure: MeasureSection,
    /// Submissions with a deadline.
    pub drop_box: Vec<DropBoxSection>,
    /// Files for other members.
    pub files: FilesSection,
    /// Casts that members may send here.
    pub cast: CastSection,
    /// Live media.
    pub stream: StreamSection,
    /// Bonds of other members.
    pub bond: BondSection,
    /// Packets that ride in probe trains.
    pub carrier: CarrierSection,
    pub interfaces: InterfacesSection,
    /// The API and the page on loopback.
    pub api: ApiSection,
    /// SOCKS5 for the programs of this host.
    pub socks: SocksSection,
    /// The queue of transfers.
    pub jobs: JobsSection,
    /// Prometheus metrics.
    pub metrics: MetricsSection,
    pub log: LogSection,
    /// The oracle, on the host that is one.
    pub oracle: OracleSection,
}

impl Default for Config {
    fn default() -> Self {
        let all =
            [SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)), (Ipv6Addr::UNSPECIFIED, PORT).into()];
        Self {
            listen: all.into(),
            reach: ReachMode::default(),
            relay: RelaySection::default(),
            measure: MeasureSection::default(),
            files: FilesSection::default(),
            cast: CastSection::default(),
            stream: StreamSection::default(),
            bond: BondSection::default(),
            carrier: CarrierSection::default(),
            interfaces: InterfacesSection::default(),
            drop_box: Vec::new(),
            api: ApiSection::default(),
            socks: SocksSection::default(),
            jobs: JobsSection::default(),
            metrics: MetricsSection::default(),
            log: LogSection::default(),
            oracle: OracleSection::default(),
        }
    }
}

impl Config {
    /// The largest file, bytes: 256 rules of a kilobyte, and more.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Reads the file, and checks it.
    ///
    /// # Errors
    /// [`ConfigError`], with all that is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { file: file.to_owned(), source };
        let bytes = fs::read(file).map_err(read)?;
        if bytes.len() > Self::MAX_BYTES {
            return Err(read(io::ErrorKind::FileTooLarge.into()));
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|e| read(io::Error::new(io::ErrorKind::InvalidData, e)))?;
        let wrong = |problems| ConfigError::Problems { file: file.to_owned(), problems };
        Self::parse(&text).map_err(wrong)
    }

    /// The settings of the file service, which must know the directories of the other services.
    pub fn files(&self) -> thalweg_files::Settings {
        let inboxes = self.cast.inbox.iter().map(|inbox| inbox.path.clone());
        let boxes = self.drop_box.iter().filter_map(|one| one.directory.clone());
        let protected = inboxes.chain(boxes).collect();
        thalweg_files::Settings { protected, ..(&self.files).into() }
    }

    /// Reads the file if it exists; otherwise returns the defaults.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_or_default(file: &Path) -> Result<Self, ConfigError> {
        match Self::load(file) {
            Err(ConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            loaded => loaded,
        }
    }

    /// Reads the text, and checks it.
    ///
    /// # Errors
    /// All problems, in the order of their lines.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        read::config(text)
    }

    /// Problems of values that are each well-formed; positions are not known here.
    pub fn check(&self) -> Vec<Problem> {
        check::config(self)
    }

    /// Directories that this host cannot open: `thalweg node` would not start with them. Positions are not known here.
    pub fn check_here(&self) -> Vec<Problem> {
        [self.files.check_here(), self.cast.check_here()].concat()
    }

    /// A file with all keys, each explained and with its default; keys without a default are commented out.
    pub fn example() -> &'static str {
        include_str!("example.toml")
    }

    /// A file to begin with: [`Config::example`] with all values commented out, so that a later version's defaults
    /// apply.
    pub fn template() -> String {
        let is_value =
            |line: &str| line.starts_with(|c: char| c.is_ascii_lowercase()) && line.contains(" = ");
        let mark = |line: &str| format!("{}{line}\n", if is_value(line) { "# " } else { "" });
        let (_, settings) = Self::example().split_once("\n\n").unwrap_or_default();
        TEMPLATE_HEAD.to_owned() + &settings.lines().map(mark).collect::<String>()
    }
}
