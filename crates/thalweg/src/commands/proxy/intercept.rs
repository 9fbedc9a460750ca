//! Packet rules that redirect this host's TCP connections to the proxy, as long as it lives.
//!
//! `nft -i` holds the rules: a table with an owner (`flags owner`, Linux 5.12) disappears with the process that created
//! it, and that process ends with its input, which the proxy holds. So a killed proxy leaves nothing behind. If `nft`
//! ends first, the rules are set again: without them all connections silently bypass the proxy.

use anyhow::{Context as _, anyhow, bail};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    future::pending,
    io::{self, Read as _, Write as _},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use thalweg_proxy::{MARK, RedirectPorts};
use tokio::task::spawn_blocking;

/// The timeout for the rules to be in place.
const SETUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between checks whether the rules are in place.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The prefix of our tables' names; the proxy's process id follows.
const TABLE: &str = "thalweg_proxy_";

/// How often in a row rules are set again if they stood for less than [`MIN_LIFETIME`].
const MAX_RESTARTS: u32 = 5;
const MIN_LIFETIME: Duration = Duration::from_secs(600);

/// Rules that are set again if the process that holds them ends.
#[derive(Debug)]
pub struct PacketRules {
    ports: RedirectPorts,
    rules: Interception,
    since: Instant,
    again: u32,
}

impl PacketRules {
    /// As [`Interception::begin`]; `note` is called about other proxies with rules.
    ///
    /// # Errors
    /// As [`Interception::begin`].
    pub fn begin(ports: RedirectPorts, note: &dyn Fn(String)) -> anyhow::Result<Self> {
        for other in others(&tables()) {
            note(format!(
                "process {other} is a transparent proxy already, and the kernel redirects a \
                 connection to only one of them; stop one"
            ));
        }
        Ok(Self { ports, rules: Interception::begin(ports)?, since: Instant::now(), again: 0 })
    }

    /// Sets the rules again whenever the process that holds them has ended, and notes it. Ends when that does not help.
    async fn keep(&mut self, note: &dyn Fn(String)) -> anyhow::Error {
        loop {
            if let Err(why) = self.rules.ended().await {
                return anyhow!(
                    "--transparent: cannot check whether the packet rules are in place: {why}"
                );
            }
            self.again = if self.since.elapsed() < MIN_LIFETIME { self.again + 1 } else { 1 };
            if self.again > MAX_RESTARTS {
                return anyhow!(
                    "--transparent: `nft -i`, which holds the packet rules, ended {MAX_RESTARTS} \
                     times in a row: programs' connections bypass the proxy; find out what ends \
                     it, then restart the proxy"
                );
            }
            match Interception::begin(self.ports) {
                Ok(rules) => (self.rules, self.since) = (rules, Instant::now()),
                Err(why) => {
                    return why.context(
                        "the packet rules are gone and cannot be set again: programs' \
                         connections bypass the proxy",
                    );
                }
            }
            note("`nft -i` ended, and the packet rules with it: they are set again".to_owned());
        }
    }
}

/// Keeps the rules in place, if there are any; ends only when that fails.
pub async fn keep(leading: Option<&mut PacketRules>, note: &dyn Fn(String)) -> anyhow::Error {
    match leading {
        Some(leading) => leading.keep(note).await,
        None => pending().await,
    }
}

/// Rules that are in place until this is dropped or the process ends.
#[derive(Debug)]
pub struct Interception {
    holder: Child,
}

impl Interception {
    /// Redirects all TCP connections of this host's programs to these ports, except connections to this host itself and
    /// the proxy's own.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn begin(ports: RedirectPorts) -> anyhow::Result<Self> {
        let table = format!("{TABLE}{}", std::process::id());
        let mut holder = nft();
        holder.arg("-i").env("HOME", "/");
        holder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A Ctrl-C on the terminal is for the proxy, which removes the rules before it drains.
        std::os::unix::process::CommandExt::process_group(&mut holder, 0);
        let holder = holder
            .spawn()
            .context("--transparent needs nftables' program `nft` (packages call it nftables)")?;
        let mut this = Self { holder };
        let mut input = this.holder.stdin.take().context("cannot write to nft")?;
        let written = input.write_all(rules(&table, ports).as_bytes());
        // Kept open until the end: it holds the rules.
        this.holder.stdin = Some(input);
        match written.context("nft ended immediately").and_then(|()| this.wait(&table)) {
            Ok(()) => Ok(this),
            Err(why) => bail!("--transparent: {why:#}{}", this.error_of_nft()),
        }
    }

    /// Waits until the process that holds the rules has ended; then the rules are gone.
    ///
    /// # Errors
    /// If the process cannot be watched.
    async fn ended(&self) -> io::Result<()> {
        let holder = pidfd_open(Pid::from_child(&self.holder), PidfdFlags::empty())?;
        // That process ends with this one at the latest, so the thread ends, too.
        let waiting = spawn_blocking(move || {
            let mut watched = [PollFd::new(&holder, PollFlags::IN)];
            while poll(&mut watched, None) == Err(Errno::INTR) {}
        });
        Ok(waiting.await?)
    }

    fn wait(&mut self, table: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let mut list = nft();
            let listed = list.args(["list", "table", "inet", table]).output()?;
            if String::from_utf8_lossy(&listed.stdout).contains("redirect") {
                return Ok(());
            }
            if self.holder.try_wait()?.is_some() || began.elapsed() > SETUP_TIMEOUT {
                bail!("the packet rules cannot be set");
            }
            thread::sleep(CHECK_INTERVAL);
        }
    }

    /// What nft printed, in brackets, with its usual cause.
    fn error_of_nft(&mut self) -> String {
        _ = self.holder.kill();
        let mut output = String::new();
        if let Some(mut stderr) = self.holder.stderr.take() {
            _ = stderr.read_to_string(&mut output);
        }
        let first = output.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let hint = match first.contains("not permitted") {
            true => ": this needs root (CAP_NET_ADMIN)",
            false => "",
        };
        if first.is_empty() { String::new() } else { format!(" ({first}){hint}") }
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        _ = self.holder.kill();
        _ = self.holder.wait();
    }
}

/// The list of tables; empty if it cannot be read.
fn tables() -> String {
    let listed = nft().args(["list", "tables", "inet"]).output();
    listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned()).unwrap_or_default()
}

/// The process ids of the proxies with rules, from `nft list tables`.
fn others(tables: &str) -> Vec<&str> {
    fn ours(line: &str) -> Option<&str> {
        line.trim().strip_prefix("table inet ")?.strip_prefix(TABLE)
    }
    tables.lines().filter_map(ours).collect()
}

/// The command `nft`. The directories of administration programs are not in every PATH.
fn nft() -> Command {
    let mut nft = Command::new("nft");
    let path = std::env::var("PATH").unwrap_or_default();
    nft.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    nft
}

fn rules(table: &str, RedirectPorts { v4, v6 }: RedirectPorts) -> String {
    let mut rules = format!(
        "add table inet {table} {{ flags owner; }}\n\
         add chain inet {table} out {{ type nat hook output priority -100; policy accept; }}\n\
         add rule inet {table} out meta mark {MARK:#x} return\n\
         add rule inet {table} out fib daddr type {{ local, broadcast, multicast }} return\n"
    );
    let port = |family, port| {
        format!(
            "add rule inet {table} out meta nfproto {family} meta l4proto tcp redirect to :{port}\n"
        )
    };
    rules += &v6.map(|v6| port("ipv6", v6)).unwrap_or_default();
    // The IPv4 rule comes last, because `wait` looks for it.
    rules + &port("ipv4", v4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_proxies_are_found_by_their_tables() {
        let tables = "table inet filter\ntable inet thalweg_proxy_77\ntable ip nat\n";
        assert_eq!(others(tables), ["77"]);
        assert!(others("").is_empty());
    }

    #[test]
    fn own_connections_and_connections_to_this_host_are_not_redirected() {
        let rules = rules("t", RedirectPorts { v4: 4444, v6: Some(6666) });
        let lines: Vec<&str> = rules.lines().collect();
        assert_eq!(lines.len(), 6, "{rules}");
        assert!(lines[0].contains("flags owner"));
        assert!(lines[2].ends_with("mark 0x74776c67 return"));
        assert!(lines[3].contains("local"));
        assert!(lines[4].contains("ipv6") && lines[4].ends_with(":6666"));
        assert!(lines[5].contains("ipv4") && lines[5].ends_with(":4444"));
    }
}
