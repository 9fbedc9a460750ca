//! Explains why a hop of a chain is slower than the hop before: measures how long a parent's connection to its child
//! could have sent but had nothing to send (ROMA §VI-D, Fig. 16: its buffer was empty), and how often TCP waited for a
//! retransmission timeout.

use super::{super::report::Report, depth::STEADY, mesh::CastMesh};
use anyhow::Context as _;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};
use thalweg_lab::client::Lab;

/// The kernel's counter of retransmission timeouts, in TcpExt of /proc/net/netstat.
const TIMEOUTS: &str = "TCPTimeouts";

/// Samples the connections of hosts periodically until it is dropped.
pub struct ConnectionSampler {
    /// The sending hosts, from the source on.
    parents: Vec<String>,
    dir: PathBuf,
    looks: Vec<Child>,
    timeouts: Vec<f64>,
}

/// One sample of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ConnectionSample {
    /// The host's uptime, s.
    at: f64,
    /// Bytes sent so far, including retransmissions.
    sent: u64,
    /// No byte waits to be sent, and the window has room.
    is_starved: bool,
}

impl ConnectionSampler {
    /// Starts `ss` every `period` in each of the hosts `parents`.
    ///
    /// # Errors
    /// When a host has no shell or the directory cannot be written.
    pub fn begin(
        lab: &Lab,
        mesh: &CastMesh<'_>,
        parents: &[String],
        (dir, period): (&Path, Duration),
    ) -> anyhow::Result<Self> {
        let timeouts = parents.iter().map(|host| timeouts(mesh, host)).collect();
        let mut watch =
            Self { parents: parents.to_vec(), dir: dir.to_owned(), looks: Vec::new(), timeouts };
        let script =
            "while :; do read up idle </proc/uptime; echo \"$up\"; ss -tinHO; sleep \"$0\"; done";
        for host in parents {
            let out = File::create(watch.file(host))
                .context("cannot create the file for samples of connections")?;
            let mut command = lab.command(host, "sh");
            command.args(["-c", script, &period.as_secs_f64().to_string()]);
            let look = command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null()).spawn();
            watch.looks.push(look.with_context(|| format!("cannot run `ss` in {host}"))?);
        }
        Ok(watch)
    }

    fn file(&self, host: &str) -> PathBuf {
        self.dir.join(format!("{host}.ss"))
    }

    /// Reports for each hop, where hop 1 is from the source to the first receiver: `starved`, the share of time in
    /// which its connection could send but had nothing, while it carried 15 to 85 % of the object; and `timeouts`, the
    /// retransmission timeouts of its sending host.
    ///
    /// # Errors
    /// When the samples cannot be read.
    pub fn report(
        self,
        mesh: &CastMesh<'_>,
        bytes: u64,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let (mut shares, mut all) = (Vec::new(), 0.0);
        for ((hop, host), before) in (1..).zip(&self.parents).zip(&self.timeouts) {
            let seen = fs::read_to_string(self.file(host))?;
            if let Some(share) = starved_share(&parse_samples(&seen), bytes) {
                report.add(format!("starved/{hop}"), "%", share * 100.0);
                shares.push(share * 100.0);
            }
            let count = timeouts(mesh, host) - before;
            report.add(format!("timeouts/{hop}"), "", count);
            all += count;
        }
        if let [first, .., last] = shares[..] {
            report.add("starved_first", "%", first);
            report.add("starved_last", "%", last);
        }
        report.add("starved_most", "%", shares.iter().copied().fold(f64::NAN, f64::max));
        report.add("timeouts", "", all);
        Ok(())
    }
}

impl Drop for ConnectionSampler {
    fn drop(&mut self) {
        for look in &mut self.looks {
            _ = look.kill();
            _ = look.wait();
        }
    }
}

/// The host's count of timeouts; NaN if the kernel has none.
fn timeouts(mesh: &CastMesh<'_>, host: &str) -> f64 {
    mesh.netstat(host).and_then(|text| find_counter(&text, TIMEOUTS)).unwrap_or(f64::NAN)
}

/// Finds a counter: one line has the names and the next line their values.
fn find_counter(netstat: &str, name: &str) -> Option<f64> {
    let lines: Vec<&str> = netstat.lines().collect();
    lines.windows(2).find_map(|pair| {
        let at = pair[0].split_whitespace().position(|word| word == name)?;
        pair[1].split_whitespace().nth(at)?.parse().ok()
    })
}

/// The samples, in order of time, of the connection that sent most.
fn parse_samples(seen: &str) -> Vec<ConnectionSample> {
    let (mut now, mut all) = (0.0, BTreeMap::<String, Vec<ConnectionSample>>::new());
    for line in seen.lines() {
        if let Ok(at) = line.trim().parse() {
            now = at;
        } else if let Some((ends, look)) = parse_sample(line, now) {
            all.entry(ends).or_default().push(look);
        }
    }
    let sent = |looks: &Vec<ConnectionSample>| looks.last().map_or(0, |last| last.sent);
    all.into_values().max_by_key(sent).unwrap_or_default()
}

/// Parses a line of `ss -tinHO`: the connection's ends and its state.
fn parse_sample(line: &str, at: f64) -> Option<(String, ConnectionSample)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ends = words.get(3..5)?.join(" ");
    let number =
        |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
    let (sent, window) = (number("bytes_sent:")?, number("cwnd:")?);
    // `ss` omits values that are zero.
    let (unacked, unsent) =
        (number("unacked:").unwrap_or_default(), number("notsent:").unwrap_or_default());
    Some((ends, ConnectionSample { at, sent, is_starved: unsent == 0 && unacked < window }))
}

/// The share of time in which the connection was starved; each sample stands for the time since the one before.
fn starved_share(looks: &[ConnectionSample], bytes: u64) -> Option<f64> {
    let steady = |sent: u64| {
        let share = sent as f64 / bytes as f64;
        share >= STEADY.0 && share <= STEADY.1
    };
    let pairs = looks.windows(2).filter(|pair| steady(pair[0].sent) && steady(pair[1].sent));
    let (mut idle, mut whole) = (0.0, 0.0);
    for pair in pairs {
        let span = pair[1].at - pair[0].at;
        whole += span;
        idle += if pair[1].is_starved { span } else { 0.0 };
    }
    (whole > 0.0).then_some(idle / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(port: u32, sent: u64, more: &str) -> String {
        format!(
            "ESTAB 0 0 10.1.0.1:7373 10.1.0.2:{port} cubic rto:204 mss:1448 cwnd:10 bytes_sent:{sent} {more}\n"
        )
    }

    #[test]
    fn a_connection_with_room_and_no_data_is_starved() {
        let mut seen = String::new();
        for (at, sent, more) in [
            (1, 100, "unacked:3"),
            (2, 300, "unacked:10"),
            (4, 500, "unacked:3"),
            (5, 700, "unacked:3 notsent:9"),
            (6, 990, ""),
        ] {
            seen += &format!("{at}.00\n{}{}", line(5, 1, ""), line(6, sent, more));
        }
        // Between 150 and 850 bytes there are 3 s; the connection starved in 2 of them, before the sample at 4 s.
        let share = starved_share(&parse_samples(&seen), 1000).unwrap();
        assert!((share - 2.0 / 3.0).abs() < 1e-9, "{share}");
        assert_eq!(starved_share(&parse_samples(""), 1000), None);
    }

    #[test]
    fn a_counter_of_the_kernel_is_found() {
        let text = "TcpExt: SyncookiesSent TCPTimeouts X\nTcpExt: 1 42 3\nIpExt: A\nIpExt: 7\n";
        assert_eq!(find_counter(text, TIMEOUTS), Some(42.0));
        assert_eq!(find_counter(text, "None"), None);
    }
}
