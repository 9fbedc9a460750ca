//! Parses congestion control and buffers of sockets from the output of `ss -tinmH`.

use crate::record::Sockets;

/// Parses the output of `ss -tinmH` (with `p` it has process ids too): the established sockets whose first line
/// `wanted` accepts.
///
/// The congestion control is the last word before the first `name:value` after `skmem:(…)`; flags such as `ts sack`
/// precede it.
pub fn parse(text: &str, wanted: impl Fn(&str) -> bool) -> Sockets {
    let mut sockets = Sockets::default();
    let mut counts = false;
    for line in text.lines() {
        if !line.starts_with(char::is_whitespace) {
            counts = line.starts_with("ESTAB") && wanted(line);
            sockets.seen += u64::from(counts);
        }
        if let Some(at) = line.find("skmem:(").filter(|_| counts) {
            details(&line[at..], &mut sockets);
        }
    }
    sockets
}

fn details(line: &str, sockets: &mut Sockets) {
    let Some((memory, rest)) = line.split_once(')') else { return };
    for field in memory.trim_start_matches("skmem:(").split(',') {
        let number = |name| field.strip_prefix(name).and_then(|n: &str| n.parse::<u64>().ok());
        if let Some(bytes) = number("rb") {
            sockets.receive_bytes = sockets.receive_bytes.max(bytes);
        }
        if let Some(bytes) = number("tb") {
            sockets.send_bytes = sockets.send_bytes.max(bytes);
        }
    }
    let words = rest.split_whitespace().take_while(|w| !w.contains(':'));
    if let Some(algorithm) = words.last() {
        sockets.congestion_control.insert(algorithm.to_owned());
    }
}

/// Whether a line of `ss` is of a connection that leaves its host. Connections over loopback or to the host's own
/// address do not use its routes, which set the congestion control.
pub fn leaves_host(line: &str) -> bool {
    let mut ends =
        line.split_whitespace().skip(3).map(|end| end.rsplit_once(':').unwrap_or((end, "")).0);
    let (own, peer) = (ends.next().unwrap_or_default(), ends.next().unwrap_or_default());
    let local = ["127.", "[::1]", "[::ffff:127."];
    own != peer && !local.iter().any(|prefix| peer.starts_with(prefix))
}

/// Whether a line of `ss -p` is of a socket of one of these processes.
pub fn belongs_to(line: &str, pids: &[u32]) -> bool {
    line.split("pid=").skip(1).any(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|d| d.parse().ok()).is_some_and(|pid| pids.contains(&pid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SS: &str = "\
ESTAB 0      0         10.1.0.1:45678    10.1.0.2:80    users:((\"curl\",pid=123,fd=5))
\t skmem:(r0,rb6291456,t0,tb87040,f0,w0,o0,bl0,d0) ts sack cubic wscale:7,7 rto:240 rtt:40.1/0.2 cwnd:10
ESTAB 0      0        127.0.0.1:5000    127.0.0.1:5001  users:((\"x\",pid=12,fd=5),(\"y\",pid=77,fd=1))
\t skmem:(r0,rb131072,t0,tb2626560,f0,w0,o0,bl0,d0) ts sack bbr wscale:7,7 rto:204 bbr:(bw:1bps,mrtt:0.1)
ESTAB 0      0        10.1.0.1:5000    10.1.0.1:5001  users:((\"x\",pid=12,fd=6))
\t skmem:(r0,rb131072,t0,tb2626560,f0,w0,o0,bl0,d0) ts sack bbr wscale:7,7 rto:204 bbr:(bw:1bps,mrtt:0.1)
LISTEN 0     128          0.0.0.0:80       0.0.0.0:*
\t skmem:(r0,rb131072,t0,tb16384,f0,w0,o0,bl0,d0) reno cwnd:10
";

    #[test]
    fn established_sockets_that_leave_the_host_count() {
        let sockets = parse(SS, leaves_host);
        assert_eq!(sockets.congestion_control, ["cubic".to_owned()].into());
        assert_eq!(
            (sockets.receive_bytes, sockets.send_bytes, sockets.seen),
            (6_291_456, 87_040, 1)
        );
    }

    #[test]
    fn sockets_are_filtered_by_process() {
        let sockets = parse(SS, |line| belongs_to(line, &[77]));
        assert_eq!(sockets.congestion_control, ["bbr".to_owned()].into());
        assert_eq!(parse(SS, |line| belongs_to(line, &[1, 7])).seen, 0);
        assert_eq!(parse(SS, |_| true).seen, 3);
    }
}
