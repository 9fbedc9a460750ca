//! Clients that ask for candidates over connections that stay open.

use super::{pause_before_retry, port::OraclePort, world::SyntheticMesh};
use anyhow::{Context as _, bail, ensure};
use std::time::Duration;
use thalweg_net::{
    PrivateKey,
    channel::{Channel, Connector, Protocol},
};
use thalweg_wire::{Signer as _, mesh::measure::CandidatesReply};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::Instant,
};

/// Candidates of one answer: UKAIRO's m.
const M: usize = 5;

/// The strategy of the requested ranking.
#[derive(Clone, Copy)]
pub enum Strategy {
    Oblivious,
    Balanced,
    Specific,
    LoadAware,
}

impl Strategy {
    /// In the order in which the results list them.
    pub const ALL: [Self; 4] = [Self::Oblivious, Self::Balanced, Self::Specific, Self::LoadAware];

    pub fn name(self) -> &'static str {
        match self {
            Self::Oblivious => "oblivious",
            Self::Balanced => "balanced",
            Self::Specific => "specific",
            Self::LoadAware => "load_aware",
        }
    }
}

/// A strategy, and for how long it is asked for.
#[derive(Clone, Copy)]
pub struct ClientLoad {
    pub strategy: Strategy,
    pub time: Duration,
}

/// The results of a load.
pub struct LoadResult {
    /// The time of each request.
    pub times: Vec<Duration>,
    took: Duration,
}

impl LoadResult {
    /// Answers per second.
    pub fn per_second(&self) -> f64 {
        self.times.len() as f64 / self.took.as_secs_f64()
    }
}

/// One connection.
struct OracleConnection {
    channel: Channel<TcpStream>,
    buffer: Vec<u8>,
}

impl OracleConnection {
    async fn open(
        key: &PrivateKey,
        world: &SyntheticMesh,
        port: &OraclePort,
    ) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(port.at).await?;
        stream.set_nodelay(true)?;
        let connector = Connector::new(key)?;
        let channel = connector.connect(stream, world.node.id(), Protocol::Api).await?;
        Ok(Self { channel, buffer: vec![] })
    }

    /// Sends a request and reads the whole answer. Returns the start and the end of its body in the buffer.
    async fn ask(&mut self, request: &[u8]) -> anyhow::Result<(usize, usize)> {
        self.channel.write_all(request).await?;
        self.channel.flush().await?;
        self.buffer.clear();
        loop {
            if let Some(body) = body(&self.buffer)? {
                return Ok(body);
            }
            let read = self.channel.read_buf(&mut self.buffer).await?;
            ensure!(read > 0, "the oracle closed the connection");
        }
    }

    async fn candidates(&mut self, request: &[u8]) -> anyhow::Result<CandidatesReply> {
        let (start, end) = self.ask(request).await?;
        Ok(serde_json::from_slice(&self.buffer[start..end])?)
    }
}

/// The start and the end of an answer's body once it is complete (RFC 9112 §6.2).
fn body(buffer: &[u8]) -> anyhow::Result<Option<(usize, usize)>> {
    let Some(head) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&buffer[..head])?;
    if !text.starts_with("HTTP/1.1 200") {
        bail!("the oracle answered {}", text.lines().next().unwrap_or_default());
    }
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let end = head + 4 + length.context("the oracle's answer has no Content-Length")?;
    Ok((buffer.len() >= end).then_some((head + 4, end)))
}

fn request(strategy: Strategy) -> Vec<u8> {
    let path = format!("/v1/candidates?strategy={}&m={M}", strategy.name());
    format!("GET {path} HTTP/1.1\r\nhost: oracle\r\n\r\n").into_bytes()
}

/// Waits until the oracle offers ranked relays.
///
/// # Errors
/// When it does not within `limit`.
pub async fn until_ranked(
    world: &SyntheticMesh,
    port: &OraclePort,
    limit: Duration,
) -> anyhow::Result<()> {
    let key = world.clients.first().context("there is no client")?;
    let mut line = OracleConnection::open(key, world, port).await?;
    let (since, request) = (Instant::now(), request(Strategy::Oblivious));
    loop {
        let reply = line.candidates(&request).await?;
        if reply.measured > 0 && reply.candidates.iter().any(|c| c.score > 0.0) {
            return Ok(());
        }
        pause_before_retry(since, limit, "no ranking").await?;
    }
}

/// Runs `most` clients, or all if there are fewer; each asks again as soon as it has an answer.
///
/// # Errors
/// When an answer is wrong or missing.
pub async fn ask(
    world: &SyntheticMesh,
    port: &OraclePort,
    load: ClientLoad,
    most: usize,
) -> anyhow::Result<LoadResult> {
    let mut lines = vec![];
    for key in world.clients.iter().take(most) {
        lines.push(OracleConnection::open(key, world, port).await?);
    }
    let (began, mut all) = (Instant::now(), JoinSet::new());
    for line in lines {
        all.spawn(run_client(line, load, began + load.time));
    }
    let mut times = vec![];
    while let Some(done) = all.join_next().await {
        times.extend(done??);
    }
    Ok(LoadResult { times, took: began.elapsed() })
}

async fn run_client(
    mut line: OracleConnection,
    load: ClientLoad,
    until: Instant,
) -> anyhow::Result<Vec<Duration>> {
    let (request, mut times) = (request(load.strategy), vec![]);
    let first = line.candidates(&request).await?;
    ensure!(first.candidates.len() == M, "{} candidates instead of {M}", first.candidates.len());
    while Instant::now() < until {
        let began = Instant::now();
        line.ask(&request).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::body;

    #[test]
    fn an_answer_is_complete_once_its_whole_body_has_arrived() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP";
        assert_eq!(body(&answer[..30]).unwrap(), None);
        assert_eq!(body(&answer[..40]).unwrap(), None);
        let (start, end) = body(answer).unwrap().unwrap();
        assert_eq!(&answer[start..end], b"abc");
        assert!(body(b"HTTP/1.1 503 Service Unavailable\r\n\r\n").is_err());
    }
}
