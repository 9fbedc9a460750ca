//! Gathers the facts of this host, and hands them to the checks.

use super::{Args, members};
use crate::commands::{history_file, host as commands_host};
use std::{fs, path::PathBuf, time::Duration};
use thalweg_doctor::{
    Finding,
    checks::{
        certificates, disk, limits,
        membership::{self, RosterFacts},
        names, network, port, settings, state, tcp, timers,
    },
    host::{self, Process},
};
use thalweg_mesh::{Membership, State};
use thalweg_node::{
    config::{Config, ConfigError, config_file},
    daemon::NodeStatus,
};
use thalweg_paths::{
    detours::{KnownPaths, ask_paths},
    estimates::Estimates,
};
use thalweg_wire::mesh::{Member, PORT};
use tokio::time::timeout;

/// Free space that a state directory should have, bytes: rosters, histories, journals.
const STATE_SPACE: u64 = 20_000_000;

/// Free space that a directory for others' data should have, bytes: the default of `keep_free`.
const DATA_SPACE: u64 = 1_000_000_000;

/// How long a running node may take to show its status: it asks the oracle for 5 s.
const STATUS: Duration = Duration::from_secs(8);

/// How long the oracle may take to tell the rates of paths.
const ORACLE: Duration = Duration::from_secs(3);

/// What all examinations of this host start from.
pub(super) struct Patient<'a> {
    pub args: &'a Args,
    pub config: Config,
    /// The state directory, if commands can use it.
    pub state: Option<State>,
    /// The status of the running node, if one answers.
    pub node: Option<NodeStatus>,
    /// The process of the running node, if known.
    pub process: Option<Process>,
    pub membership: Option<Membership>,
    /// Why there is no membership, if there should be one.
    pub damage: Option<String>,
}

impl Patient<'_> {
    /// This host's entry in the roster.
    pub fn member(&self) -> Option<Member> {
        let name = self.state.as_ref()?.mesh().ok()?.name;
        self.membership.as_ref()?.current()?.by_name(&name).cloned()
    }

    /// The port that other members connect to.
    pub fn port(&self) -> u16 {
        let listed = self.member().and_then(|member| member.addresses.first().map(|at| at.port));
        let told = self.config.listen.first().map(std::net::SocketAddr::port);
        listed.or(told).unwrap_or(PORT)
    }
}

/// All findings.
///
/// # Errors
/// If this host has no place for a state directory.
pub(super) async fn examine(args: &Args) -> anyhow::Result<Vec<Finding>> {
    let mut found = vec![timers::check(&host::try_timers())];
    let directory = args.state_dir.directory()?;
    found.extend(state::check(&host::examine_state(&directory)));
    let (config, settings) = read_settings(args);
    found.push(settings::check(&settings));
    let patient = open(args, config).await;
    found.extend(directories(&patient, directory));
    found.extend(interfaces(&patient));
    found.extend(limits::check(&limit_facts(&patient)));
    let (names, certificates) = tokio::join!(host::ask_servers(), host::certificates());
    found.push(names::check(&names));
    found.push(names::check_proxies(&host::proxies()));
    found.extend(certificates::check(&certificates));
    let (known, told) = tokio::join!(known_paths(&patient), members::examine(&patient));
    found.extend(tcp::check(&tcp::TcpFacts { paths: known, ..host::tcp() }));
    found.extend(told);
    Ok(found)
}

async fn open(args: &Args, config: Config) -> Patient<'_> {
    let state = args.state_dir.open().ok().filter(State::has_mesh);
    let (membership, damage) = match state.as_ref().map(State::membership) {
        Some(Ok(membership)) => (Some(membership), None),
        Some(Err(why)) => (None, Some(why.to_string())),
        None => (None, None),
    };
    let (node, process) = (None, None);
    let mut patient = Patient { args, config, state, node, process, membership, damage };
    let Some(state) = &patient.state else { return patient };
    if let Ok(Some(daemon)) = commands_host::daemon(state).await {
        patient.node = timeout(STATUS, daemon.node_status()).await.ok().and_then(Result::ok);
        let lock = fs::read_to_string(state.dir().join("lock")).unwrap_or_default();
        patient.process = lock.trim().parse().ok().map(Process);
    }
    patient
}

/// The settings, or their defaults if they cannot be used, and what is wrong with them.
fn read_settings(args: &Args) -> (Config, settings::SettingsFacts) {
    let file = config_file(args.config.as_deref());
    let file = file.filter(|file| args.config.is_some() || file.exists());
    let Some(path) = file.clone() else { return Default::default() };
    let (config, problems) = match Config::load(&path) {
        Ok(config) => {
            let here = config.check_here().iter().map(ToString::to_string).collect();
            (config, here)
        }
        Err(ConfigError::Problems { problems, .. }) => {
            (Config::default(), problems.iter().map(ToString::to_string).collect())
        }
        Err(other) => (Config::default(), vec![other.to_string()]),
    };
    (config, settings::SettingsFacts { file, problems })
}

/// The directories that the node writes to.
fn directories(patient: &Patient<'_>, state: PathBuf) -> Vec<Finding> {
    let config = &patient.config;
    let mut all = vec![("spool", state.join("spool"), DATA_SPACE)];
    // Without these a node makes them when it needs them.
    all.retain(|(_, path, _)| path.exists());
    if state.exists() {
        all.insert(0, ("state directory", state, STATE_SPACE));
    }
    let inboxes = config.cast.inbox.iter().map(|inbox| ("inbox", inbox.path.clone(), DATA_SPACE));
    all.extend(inboxes);
    all.extend(config.files.accept.iter().map(|one| ("accept", one.path.clone(), DATA_SPACE)));
    let boxes = config.drop_box.iter().filter_map(|one| one.directory.clone());
    all.extend(boxes.map(|path| ("drop box", path, DATA_SPACE)));
    let check = |(role, path, space): (&str, PathBuf, u64)| {
        disk::check(&host::try_directory(role, &path, space))
    };
    all.into_iter().flat_map(check).collect()
}

fn interfaces(patient: &Patient<'_>) -> Vec<Finding> {
    let settings = patient.config.interfaces.settings();
    match host::network(|name| settings.wish(name)) {
        Ok(facts) => network::check(&facts),
        Err(why) => vec![Finding::unchecked("interface.usable", why.to_string())],
    }
}

fn limit_facts(patient: &Patient<'_>) -> limits::LimitFacts {
    let relays = patient.node.as_ref().is_some_and(|node| !node.relay.is_null());
    let connections = if relays { patient.config.relay.max_connections as u64 } else { 0 };
    match patient.process {
        Some(process) => host::process_limits(process, connections),
        None => host::command_limits(connections),
    }
}

/// The paths between this host and other members whose rate and round trip the oracle knows.
async fn known_paths(patient: &Patient<'_>) -> Vec<tcp::KnownPath> {
    let (Some(state), Some(own)) = (&patient.state, patient.member()) else { return Vec::new() };
    // Without the oracle no path is compared; that it is away is a finding of its own.
    let Ok(reply) = ask_paths(state, ORACLE).await else { return Vec::new() };
    let now = history_file::now();
    let estimates = Estimates::of_paths(&KnownPaths::new(reply, now), now);
    let roster = patient.membership.as_ref().and_then(Membership::current);
    let members = roster.iter().flat_map(|roster| roster.members.iter());
    let path = |other: &Member| {
        let legs = [(&own.name, &other.name), (&other.name, &own.name)];
        let rates = legs.iter().filter_map(|(from, to)| estimates.leg(from, to).rate);
        let (rate, rtt) = (rates.max()?, estimates.rtt(&own.name, &other.name)?);
        Some(tcp::KnownPath { to: other.name.to_string(), rate, rtt })
    };
    members.filter_map(path).collect()
}

/// The roster of this host, as commands see it.
pub(super) fn roster(patient: &Patient<'_>) -> Finding {
    let facts = match (&patient.membership, &patient.damage) {
        (Some(membership), _) => host::roster(membership),
        (None, Some(why)) => RosterFacts::Damaged(why.clone()),
        (None, None) => RosterFacts::Missing,
    };
    membership::check_roster(&facts)
}

/// The port's facts as far as this host alone knows them.
pub(super) fn port_facts(patient: &Patient<'_>) -> port::PortFacts {
    let port = patient.port();
    let listens = patient.node.as_ref().map(|node| node.listen.clone());
    let holder = match listens {
        Some(_) => None,
        None => host::port_holder(port),
    };
    let listed = patient.member().map(|member| member.addresses).unwrap_or_default();
    port::PortFacts { port, listens, holder, listed, ..port::PortFacts::default() }
}
