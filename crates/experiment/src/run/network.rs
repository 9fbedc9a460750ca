//! The network in which programs run: a lab, or the loopback of this machine.

use super::installed_programs;
use crate::{
    error::{ExperimentError, Result},
    plan::{Kind, Limit, Plan},
    schedule::Round,
    template::Values,
};
use std::{
    collections::BTreeSet,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    sync::Once,
};
use thalweg_console::note;
use thalweg_lab::{
    client::Lab,
    topology::{LinkChange, Resolved, Topology},
};
use thalweg_units::Rate;

/// The network of a round.
#[derive(Debug)]
pub enum Network {
    /// A lab, which ends when this value is dropped.
    Lab(Box<Lab>),
    /// This machine's loopback.
    Host,
}

fn lab_fault(error: impl ToString) -> ExperimentError {
    ExperimentError::Lab(error.to_string())
}

/// Warns once that packets may be late if the kernel does not grant the emulator real-time priority.
fn warn_without_realtime(lab: &Lab) {
    static WARNED: Once = Once::new();
    if lab.stats(false).is_ok_and(|stats| !stats.realtime) {
        WARNED.call_once(|| {
            note!(
                "the emulator runs at ordinary priority: on a busy machine packets are late, and rounds are \
                 repeated. Run as root, outside of a control group whose cpu.rt_runtime_us is 0"
            );
        });
    }
}

/// The topology of a round: that of the plan or a file, with the round's seed, the changes of its cases, and its
/// parameters. `None` for a plan without a lab.
///
/// `instead` is a topology that replaces the plan's; cases then change only parameters.
///
/// # Errors
/// If it cannot be read or is invalid.
pub fn topology(
    plan: &Plan,
    directory: &Path,
    instead: Option<&toml::Table>,
    round: &Round,
    values: &Values,
) -> Result<Option<Topology>> {
    let mut table = match (plan.kind, instead, &plan.topology) {
        (Kind::Host, ..) | (_, None, None) => return Ok(None),
        (_, Some(table), _) => table.clone(),
        (_, None, Some(toml::Value::String(file))) => read_table(&directory.join(file))?,
        (_, None, Some(toml::Value::Table(table))) => table.clone(),
        (_, None, Some(_)) => {
            return Err(ExperimentError::value(
                "topology",
                "must be a table or the name of a file",
            ));
        }
    };
    if instead.is_none() {
        for (_, case) in round.cases(plan) {
            let changes =
                case.set.iter().filter_map(|(k, v)| Some((k.strip_prefix("topology.")?, v)));
            for (path, value) in changes {
                set_at(&mut table, path, value)?;
            }
        }
    }
    // TOML integers are signed, and the seed must not be negative.
    let seed = toml::Value::Integer((round.draw() & (u64::MAX >> 1)) as i64);
    // A seed in the topology keeps the network the same while other draws differ between rounds.
    table.entry("seed").or_insert(seed);
    let mut value = toml::Value::Table(table);
    values.render_toml(&mut value)?;
    let text = toml::to_string(&value).map_err(|e| ExperimentError::value("topology", e))?;
    let topology = Topology::from_toml(&text).map_err(|e| ExperimentError::value("topology", e))?;
    Ok(Some(topology))
}

/// Reads a TOML file as a table.
///
/// # Errors
/// If it cannot be read or parsed.
pub fn read_table(file: &Path) -> Result<toml::Table> {
    let text = std::fs::read_to_string(file).map_err(ExperimentError::file("read", file))?;
    text.parse().map_err(|e| ExperimentError::value(file.display().to_string(), e))
}

/// Sets the value at a path like `link.a.rate`. Missing tables are created; a number is the index into an array.
fn set_at(table: &mut toml::Table, path: &str, value: &toml::Value) -> Result<()> {
    let fault =
        || ExperimentError::value(format!("topology.{path}"), "does not exist in the topology");
    let mut parts: Vec<&str> = path.split('.').collect();
    let last = parts.pop().ok_or_else(fault)?;
    let mut at: &mut toml::Table = table;
    let mut parts = parts.into_iter().peekable();
    while let Some(part) = parts.next() {
        let entry = at.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        let inner = match parts.peek().and_then(|n| n.parse::<usize>().ok()) {
            Some(index) if entry.is_array() => {
                parts.next();
                entry.get_mut(index).ok_or_else(fault)?
            }
            _ => entry,
        };
        at = inner.as_table_mut().ok_or_else(fault)?;
    }
    at.insert(last.to_owned(), value.clone());
    Ok(())
}

impl Network {
    /// Starts the network of a round.
    ///
    /// # Errors
    /// If the lab does not start; the message says what to do.
    pub fn start(topology: Option<&Topology>) -> Result<Self> {
        match topology {
            Some(topology) => {
                let lab = Lab::start(topology).map_err(lab_fault)?;
                warn_without_realtime(&lab);
                Ok(Self::Lab(Box::new(lab)))
            }
            None => Ok(Self::Host),
        }
    }

    /// A command that runs `argv` on `host` (validation of the plan ensures that there is one).
    pub fn command(&self, host: Option<&str>, argv: &[String]) -> Command {
        let (program, args) = argv.split_first().map_or(("", argv), |(p, rest)| (p.as_str(), rest));
        // Servers may not be in an ordinary user's PATH; records show the name as written.
        let program = installed_programs::find(program).unwrap_or_else(|| program.into());
        let mut command = match (self, host) {
            (Self::Lab(lab), Some(host)) => lab.command(host, program),
            _ => Command::new(program),
        };
        command.args(args);
        command
    }

    /// Sets the values `{ip.HOST}`, `{ip.HOST.1}` … of all hosts, and `{lab}`, the lab's socket.
    pub fn addresses(&self, values: &mut Values) {
        let Self::Lab(lab) = self else { return };
        values.set_path("lab", lab.socket(), "LAB");
        let resolved = lab.resolved();
        for host in &resolved.hosts {
            for (k, interface) in host.interfaces.iter().enumerate() {
                let address = resolved.interfaces[*interface].v4.to_string();
                if k == 0 {
                    values.set(format!("ip.{}", host.name), &address);
                }
                values.set(format!("ip.{}.{k}", host.name), address);
            }
        }
    }

    /// Changes a link.
    ///
    /// # Errors
    /// If there is no lab, no such link, or the change is invalid.
    pub fn set(&self, link: &str, change: &toml::Table) -> Result<()> {
        let Self::Lab(lab) = self else {
            return Err(ExperimentError::Other("a plan of kind = \"host\" has no links".into()));
        };
        let change: LinkChange = change
            .clone()
            .try_into()
            .map_err(|e| ExperimentError::value(format!("link {link}"), e))?;
        lab.set(link, &change).map_err(lab_fault)
    }

    /// Restarts the measurement window of [`lateness`](Self::lateness).
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn reset(&self) -> Result<()> {
        match self {
            Self::Lab(lab) => lab.reset_stats().map_err(lab_fault),
            Self::Host => Ok(()),
        }
    }

    /// The 99th percentile of packets' lateness in the window, µs; `None` without a lab.
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn lateness(&self) -> Result<Option<u64>> {
        match self {
            Self::Lab(lab) => Ok(Some(lab.stats(false).map_err(lab_fault)?.lateness.p99_us)),
            Self::Host => Ok(None),
        }
    }

    /// The lab's record of one direction of a link, as JSON.
    ///
    /// # Errors
    /// If there is no lab or no such link.
    pub fn truth(&self, link: &str) -> Result<serde_json::Value> {
        let none = || {
            ExperimentError::Other(format!(
                "a metric names the link `{link}`, which this topology does not have"
            ))
        };
        let Self::Lab(lab) = self else { return Err(none()) };
        let stats = lab.stats(true).map_err(lab_fault)?;
        serde_json::to_value(stats.link(link).ok_or_else(none)?).map_err(lab_fault)
    }

    /// Whether a program listens on TCP port `port` of `host`.
    pub fn listens(&self, host: Option<&str>, port: u16) -> bool {
        let files = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
        let argv: Vec<String> = ["cat"].into_iter().chain(files).map(String::from).collect();
        // A program on the host reads the table, because this process sees only its own namespace.
        let mut cat = self.command(host, &argv);
        let output = cat.stdin(Stdio::null()).stderr(Stdio::null()).output();
        output.is_ok_and(|o| has_listener(&String::from_utf8_lossy(&o.stdout), port))
    }
}

/// Whether a table in the format of /proc/net/tcp has a socket in state LISTEN (0A) on `port`.
fn has_listener(table: &str, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&suffix)) && fields.nth(1) == Some("0A")
    })
}

/// The highest total rate of the direct path and the paths through the relays, Mbit/s: the sum of the rates of their
/// slowest links, but at most the rate of any link that all of them share. `None` without a limit.
///
/// # Errors
/// If a host is unknown.
pub fn limit(resolved: &Resolved, limit: &Limit) -> Result<Option<f64>> {
    let interface =
        |name: &str| resolved.interface_named(name).map_err(|e| ExperimentError::value("limit", e));
    let (from, to) = (interface(&limit.from)?, interface(&limit.to)?);
    let mut paths = vec![vec![(from, to)]];
    for relay in &limit.via {
        let relay = interface(relay)?;
        paths.push(vec![(from, relay), (relay, to)]);
    }
    let unlimited = Rate::from_bps(u64::MAX);
    let leg = |(a, b): &(usize, usize)| resolved.physical_limit(*a, *b).unwrap_or(unlimited);
    let path = |legs: &Vec<(usize, usize)>| legs.iter().map(leg).min().unwrap_or(unlimited);
    let sum: Rate = paths.iter().map(path).sum();
    let shared = shared_links(resolved, &paths);
    let shared = shared.into_iter().filter_map(|link| resolved.links[link].config.rate);
    let most = shared.min().unwrap_or(unlimited).min(sum);
    Ok((most < unlimited).then(|| most.as_mbps()))
}

/// The links that every path uses.
fn shared_links(resolved: &Resolved, paths: &[Vec<(usize, usize)>]) -> BTreeSet<usize> {
    let links = |legs: &Vec<(usize, usize)>| -> BTreeSet<usize> {
        let of = legs.iter().filter_map(|(a, b)| resolved.path_links(*a, *b));
        of.flatten().copied().collect()
    };
    let all = paths.iter().map(links);
    all.reduce(|a, b| a.intersection(&b).copied().collect()).unwrap_or_default()
}

/// A TCP port of 127.0.0.1 that is free now.
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<u16> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    bound.map(|a| a.port()).map_err(|e| ExperimentError::Other(format!("no free TCP port: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_change_values_inside_the_topology() {
        let mut table: toml::Table =
            "[link.a]\nrate='1 Mbit/s'\n[[cross]]\nlink='a'".parse().unwrap();
        set_at(&mut table, "link.a.rate", &"2 Mbit/s".into()).unwrap();
        set_at(&mut table, "link.b.rev.delay", &"1 ms".into()).unwrap();
        set_at(&mut table, "cross.0.rate", &"3 Mbit/s".into()).unwrap();
        assert_eq!(table["link"]["a"]["rate"].as_str(), Some("2 Mbit/s"));
        assert_eq!(table["link"]["b"]["rev"]["delay"].as_str(), Some("1 ms"));
        assert_eq!(table["cross"][0]["rate"].as_str(), Some("3 Mbit/s"));
        assert!(set_at(&mut table, "cross.1.rate", &"3 Mbit/s".into()).is_err());
        assert!(set_at(&mut table, "link.a.rate.x", &"3 Mbit/s".into()).is_err());
    }

    #[test]
    fn the_limit_is_the_sum_of_the_paths_capped_by_shared_links() {
        let limit_with = |access: &str| {
            let text = format!(
                "[host.c]\n[host.s]\n[host.r]\n[link.access]\nrate='{access}'\n\
                 [link.direct]\nrate='10 Mbit/s'\n[link.near]\nrate='40 Mbit/s'\n\
                 [link.far]\nrate='25 Mbit/s'\n\
                 [[path]]\nfrom='c'\nto='s'\nlinks=['access','direct']\n\
                 [[path]]\nfrom='c'\nto='r'\nlinks=['access','near']\n\
                 [[path]]\nfrom='r'\nto='s'\nlinks=['far']\n"
            );
            let resolved = Topology::from_toml(&text).unwrap().resolve().unwrap();
            let named = Limit { from: "s".into(), to: "c".into(), via: vec!["r".into()] };
            limit(&resolved, &named).unwrap()
        };
        assert_eq!(limit_with("100 Mbit/s"), Some(35.0));
        assert_eq!(limit_with("30 Mbit/s"), Some(30.0));
    }

    #[test]
    fn listeners_are_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue
   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000\n";
        assert!(has_listener(table, 80));
        assert!(!has_listener(table, 8080) && !has_listener(table, 8));
    }

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Network::Host.listens(None, listener.local_addr().unwrap().port()));
    }
}
