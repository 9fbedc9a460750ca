//! Asks name servers, reads the authorities of web servers, and looks for proxies in the environment.

use crate::checks::{certificates::CertificateFacts, names::NameFacts};
use futures_util::future::join_all;
use simple_dns::{CLASS, Name, Packet, QCLASS, QTYPE, Question, TYPE};
use std::{
    env, fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};
use thalweg_net::tls::{TlsClient, TlsOptions};
use tokio::{net::UdpSocket, time::timeout};

/// How long a name server may take; programs wait 5 s.
const PATIENCE: Duration = Duration::from_secs(3);

/// At most this many servers are asked; the system's resolver uses three.
const MOST_SERVERS: usize = 3;

/// The number of the question, which the answer repeats; nothing depends on its secrecy.
const QUESTION: u16 = 0x7468;

/// Asks each server of `/etc/resolv.conf` for the root's name servers.
pub async fn ask_servers() -> NameFacts {
    let text = match fs::read_to_string("/etc/resolv.conf") {
        Ok(text) => text,
        Err(why) => return NameFacts::Unreadable(why.to_string()),
    };
    let servers: Vec<IpAddr> = servers(&text).collect();
    let asked = servers.iter().map(|server| ask(*server));
    NameFacts::Servers(servers.iter().copied().zip(join_all(asked).await).collect())
}

fn servers(text: &str) -> impl Iterator<Item = IpAddr> + '_ {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let found = lines.filter_map(|rest| {
        // An interface may follow a link-local address: fe80::1%eth0.
        rest.trim().split('%').next()?.parse().ok()
    });
    found.take(MOST_SERVERS)
}

async fn ask(server: IpAddr) -> Result<Duration, String> {
    let begun = Instant::now();
    match timeout(PATIENCE, exchange(server)).await {
        Ok(Ok(())) => Ok(begun.elapsed()),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(format!("no answer in {} s", PATIENCE.as_secs())),
    }
}

/// Sends one question, and waits for an answer to it, whatever it says.
async fn exchange(server: IpAddr) -> Result<(), String> {
    let any: IpAddr = match server {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let failed = |why: std::io::Error| why.to_string();
    let socket = UdpSocket::bind((any, 0)).await.map_err(failed)?;
    socket.connect((server, 53)).await.map_err(failed)?;
    socket.send(&question()?).await.map_err(failed)?;
    let mut answer = [0; 512];
    loop {
        let length = socket.recv(&mut answer).await.map_err(failed)?;
        if length >= 2 && answer[..2] == QUESTION.to_be_bytes() {
            return Ok(());
        }
    }
}

fn question() -> Result<Vec<u8>, String> {
    let mut packet = Packet::new_query(QUESTION);
    packet.set_flags(simple_dns::PacketFlag::RECURSION_DESIRED);
    let root = Name::new("").map_err(|why| why.to_string())?;
    let (kind, class) = (QTYPE::TYPE(TYPE::NS), QCLASS::CLASS(CLASS::IN));
    packet.questions.push(Question::new(root, kind, class, false));
    packet.build_bytes_vec().map_err(|why| why.to_string())
}

/// Reads the authorities as `thalweg get` does.
pub async fn certificates() -> CertificateFacts {
    let read = async { TlsClient::new(&TlsOptions::default(), &[])?.prepare().await };
    let fault = read.await.err().map(|why: thalweg_net::TlsError| why.to_string());
    CertificateFacts { fault, variables: variables(&["SSL_CERT_FILE", "SSL_CERT_DIR"]) }
}

/// The environment's proxies.
pub fn proxies() -> Vec<(String, String)> {
    variables(&["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
}

fn variables(names: &[&str]) -> Vec<(String, String)> {
    let value = |name: &&str| {
        let value = env::var_os(name).filter(|value| !value.is_empty())?;
        Some(((*name).to_owned(), without_password(&value.to_string_lossy())))
    };
    names.iter().filter_map(value).collect()
}

/// A URL without the login in it: evidence is shown and stored.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://…@{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_the_system_does() {
        let text =
            "# nameserver 9.9.9.9\nnameserver 192.0.2.1\nsearch x\nnameserver fe80::1%eth0\n";
        let all: Vec<String> = servers(text).map(|ip| ip.to_string()).collect();
        assert_eq!(all, ["192.0.2.1", "fe80::1"]);
    }

    #[test]
    fn the_question_is_for_the_root() {
        let bytes = question().unwrap();
        assert_eq!(bytes[..2], QUESTION.to_be_bytes());
        assert_eq!(bytes[12..], [0, 0, 2, 0, 1]);
    }

    #[test]
    fn a_proxys_password_is_no_evidence() {
        assert_eq!(without_password("http://u:p@h:3128/x"), "http://…@h:3128/x");
        assert_eq!(without_password("http://h:3128"), "http://h:3128");
    }
}
