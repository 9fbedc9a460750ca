//! Packet rules that lead this host's TCP connections to the proxy, as long as it lives.
//!
//! `nft -i` holds them: a table with an owner (`flags owner`, Linux 5.12) is gone with the process
//! that made it, and that process ends with its input, which is ours. So nothing is left behind by
//! a proxy that is killed. Where that process ends before, the rules are set again: without them all goes by the
//! proxy in silence.

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
use thalweg_proxy::{MARK, Redirected};
use tokio::task::spawn_blocking;

/// The rules stand so soon.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between looks.
const LOOK: Duration = Duration::from_millis(20);

/// What our tables are called; then the proxy's process.
const TABLE: &str = "thalweg_proxy_";

/// So often in a row rules are set again that stood for less than [`LASTING`].
const MOST_AGAIN: u32 = 5;
const LASTING: Duration = Duration::from_secs(600);

/// Rules that are set again where what holds them ends.
#[derive(Debug)]
pub struct Leading {
    ports: Redirected,
    rules: Interception,
    since: Instant,
    again: u32,
}

impl Leading {
    /// As [`Interception::begin`]; `note` hears of other proxies that have rules.
    ///
    /// # Errors
    /// As [`Interception::begin`].
    pub fn begin(ports: Redirected, note: &dyn Fn(String)) -> anyhow::Result<Self> {
        for other in others(&tables()) {
            note(format!(
                "process {other} is a transparent proxy, too: the kernel leads each connection to one of the two alone; \
                 end one of them"
            ));
        }
        Ok(Self { ports, rules: Interception::begin(ports)?, since: Instant::now(), again: 0 })
    }

    /// Sets the rules again when what holds them has ended, and says so; ends when that is of no use.
    async fn keep(&mut self, note: &dyn Fn(String)) -> anyhow::Error {
        loop {
            if let Err(why) = self.rules.ended().await {
                return anyhow!(
                    "--transparent: nobody can tell whether the packet rules stand: {why}"
                );
            }
            self.again = if self.since.elapsed() < LASTING { self.again + 1 } else { 1 };
            if self.again > MOST_AGAIN {
                return anyhow!(
                    "--transparent: `nft -i`, which holds the packet rules, ended {MOST_AGAIN} times in a row: programs' \
                     connections go their own way; see what ends it, then start the proxy again"
                );
            }
            match Interception::begin(self.ports) {
                Ok(rules) => (self.rules, self.since) = (rules, Instant::now()),
                Err(why) => {
                    return why.context(
                        "the packet rules are gone, and cannot be set again: programs' connections go their own way",
                    );
                }
            }
            note("`nft -i` ended, and the packet rules with it: they are set again".to_owned());
        }
    }
}

/// Keeps them, if there are any; ends only when that cannot be done.
pub async fn keep(leading: Option<&mut Leading>, note: &dyn Fn(String)) -> anyhow::Error {
    match leading {
        Some(leading) => leading.keep(note).await,
        None => pending().await,
    }
}

/// Rules that stand until this is dropped, or the process ends.
#[derive(Debug)]
pub struct Interception {
    holder: Child,
}

impl Interception {
    /// Leads all TCP connections of this host's programs to these ports, but those to this host
    /// itself and the proxy's own.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn begin(ports: Redirected) -> anyhow::Result<Self> {
        let table = format!("{TABLE}{}", std::process::id());
        let mut holder = nft();
        holder.arg("-i").env("HOME", "/");
        holder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A Ctrl-C of the terminal is for the proxy: it ends the rules before it drains.
        std::os::unix::process::CommandExt::process_group(&mut holder, 0);
        let holder = holder
            .spawn()
            .context("--transparent needs nftables' program `nft` (packages call it nftables)")?;
        let mut this = Self { holder };
        let mut input = this.holder.stdin.take().context("nft takes no input")?;
        let written = input.write_all(rules(&table, ports).as_bytes());
        // Open until the end: it is what holds the rules.
        this.holder.stdin = Some(input);
        match written.context("nft ended at once").and_then(|()| this.wait(&table)) {
            Ok(()) => Ok(this),
            Err(why) => bail!("--transparent: {why:#}{}", this.complaint()),
        }
    }

    /// Waits until what holds the rules has ended: they are gone then.
    ///
    /// # Errors
    /// It cannot be watched.
    async fn ended(&self) -> io::Result<()> {
        let holder = pidfd_open(Pid::from_child(&self.holder), PidfdFlags::empty())?;
        // Its end is ours as well at the latest: the thread does not stay behind.
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
            if self.holder.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                bail!("the packet rules cannot be set");
            }
            thread::sleep(LOOK);
        }
    }

    /// What nft said, in brackets, and what that mostly means.
    fn complaint(&mut self) -> String {
        _ = self.holder.kill();
        let mut said = String::new();
        if let Some(mut stderr) = self.holder.stderr.take() {
            _ = stderr.read_to_string(&mut said);
        }
        let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let hint = match first.contains("not permitted") {
            true => ": it is for root (CAP_NET_ADMIN)",
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

/// The tables that there are; none where nobody says.
fn tables() -> String {
    let listed = nft().args(["list", "tables", "inet"]).output();
    listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned()).unwrap_or_default()
}

/// Of `nft list tables`, the proxies whose rules stand, by their processes.
fn others(tables: &str) -> Vec<&str> {
    fn ours(line: &str) -> Option<&str> {
        line.trim().strip_prefix("table inet ")?.strip_prefix(TABLE)
    }
    tables.lines().filter_map(ours).collect()
}

/// Root's programs are not in everybody's path.
fn nft() -> Command {
    let mut nft = Command::new("nft");
    let path = std::env::var("PATH").unwrap_or_default();
    nft.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    nft
}

fn rules(table: &str, Redirected { v4, v6 }: Redirected) -> String {
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
    // The last one is looked for.
    rules + &port("ipv4", v4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_whose_rules_stand_are_known_by_their_tables() {
        let tables = "table inet filter\ntable inet thalweg_proxy_77\ntable ip nat\n";
        assert_eq!(others(tables), ["77"]);
        assert!(others("").is_empty());
    }

    #[test]
    fn own_connections_and_those_to_this_host_pass() {
        let rules = rules("t", Redirected { v4: 4444, v6: Some(6666) });
        let lines: Vec<&str> = rules.lines().collect();
        assert_eq!(lines.len(), 6, "{rules}");
        assert!(lines[0].contains("flags owner"));
        assert!(lines[2].ends_with("mark 0x74776c67 return"));
        assert!(lines[3].contains("local"));
        assert!(lines[4].contains("ipv6") && lines[4].ends_with(":6666"));
        assert!(lines[5].contains("ipv4") && lines[5].ends_with(":4444"));
    }
}
