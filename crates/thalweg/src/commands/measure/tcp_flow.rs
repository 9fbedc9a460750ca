//! What one TCP connection moves: also to members that are reached through relays, which pass no datagrams.

use super::{Args, ExitError, dial_error};
use crate::commands::{
    exit::Code,
    gather::{self, messages::size},
};
use anyhow::anyhow;
use serde_json::json;
use std::{io, sync::Arc, time::Duration};
use thalweg_base::message;
use thalweg_console::say_line;
use thalweg_mesh::State;
use thalweg_net::channel::Protocol;
use thalweg_units::Rate;
use thalweg_wire::probe::{MAX_BLOCK, MAX_MESSAGE, NodeReply, ProbeRequest, Refusal};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    sync::Semaphore,
    time::{Instant, timeout},
};

/// The bytes of one request or reply: 16 KiB take 1.3 s at 100 kbit/s.
const BLOCK: usize = 16 << 10;

/// Blocks without a reply: 8 MiB, a gigabit during 67 ms.
const IN_FLIGHT: usize = 512;

/// How long a flow lasts, if `--within` is not less.
const LASTS: Duration = Duration::from_secs(5);

/// The share of that time that does not count: the connection opens its window.
const START: f64 = 0.4;

/// The longest silence of the member.
const SILENCE: Duration = Duration::from_secs(10);

/// What was moved.
struct TcpFlow {
    bps: f64,
    bytes: u64,
    took: Duration,
}

/// Measures, and prints the result.
///
/// # Errors
/// The member is not reached or refuses; standard output is closed.
pub(super) async fn run(args: &Args, state: &State) -> Result<(), ExitError> {
    let dialer = gather::dialer(state).map_err(|why| (Code::Other, why))?;
    let channel = dialer.channel(&args.node, &[], Protocol::Probe).await.map_err(dial_error)?;
    let route = channel.get_ref().route().called();
    let (from, to) = split(channel);
    let lasts = args.within.min(LASTS);
    let flow = flow(args.back, lasts, from, to).await;
    let flow = flow.map_err(|why| (Code::Network, anyhow!("member {}: {why}", args.node)))?;
    print(args, &flow, &route).map_err(|why| (Code::Other, why))
}

fn print(args: &Args, flow: &TcpFlow, route: &str) -> anyhow::Result<()> {
    let TcpFlow { bps, bytes, took } = *flow;
    let way = if args.back { "from" } else { "to" };
    if args.json {
        return Ok(say_line(json!({
            "event": "result", "of": "tcp_rate", "unit": "bit/s", "method": "tcp",
            "node": args.node, "way": way, "through": route, "value": bps, "probe_bytes": bytes,
            "took_seconds": took.as_secs_f64(),
        }))?);
    }
    say_line(format!("TCP rate {}", Rate::from_bps(bps as u64)))?;
    if !args.quiet {
        let took = took.as_secs_f64();
        let by = if route == "direct" { "directly".into() } else { format!("through {route}") };
        say_line(format!("{way} {} by tcp, {by}: {} in {took:.1} s", args.node, size(bytes)))?;
    }
    Ok(())
}

/// Moves blocks for this long, and counts those that have arrived.
async fn flow(
    is_back: bool,
    lasts: Duration,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<TcpFlow> {
    let room = Arc::new(Semaphore::new(IN_FLIGHT));
    let begun = Instant::now();
    let counted_from = begun + lasts.mul_f64(START);
    let asking = async {
        let (request, block) = match is_back {
            true => (ProbeRequest::Give { bytes: BLOCK as u32 }, Vec::new()),
            false => (ProbeRequest::Take { bytes: BLOCK as u32 }, vec![0; BLOCK]),
        };
        loop {
            room.acquire().await.map_err(io::Error::other)?.forget();
            message::write(&mut to, &request).await?;
            to.write_all(&block).await?;
        }
    };
    let counting = async {
        let (mut bytes, mut counted, mut first, mut last) = (0, 0, None, begun);
        while begun.elapsed() < lasts {
            let block = timeout(SILENCE, read_block(&mut from)).await.map_err(|_| silent())??;
            room.add_permits(1);
            (bytes, last) = (bytes + block, Instant::now());
            match first {
                None if last >= counted_from => first = Some(last),
                None => {}
                Some(_) => counted += block,
            }
        }
        let took = last.duration_since(first.unwrap_or(begun)).as_secs_f64();
        // A path so slow that all blocks came before or after: the whole time counts.
        let bps = match counted {
            0 => bytes as f64 * 8.0 / last.duration_since(begun).as_secs_f64().max(1e-3),
            counted => counted as f64 * 8.0 / took.max(1e-3),
        };
        Ok(TcpFlow { bps, bytes, took: begun.elapsed() })
    };
    tokio::select! {
        broken = asking => broken,
        counted = counting => counted,
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {SILENCE:?}"))
}

/// Reads a reply, and the block that follows it. Returns the bytes that it stands for.
async fn read_block(from: &mut (impl AsyncRead + Unpin)) -> io::Result<u64> {
    match message::read(from, MAX_MESSAGE).await? {
        Some(NodeReply::Took(bytes)) => Ok(bytes.into()),
        Some(NodeReply::Given(bytes)) if bytes as usize <= MAX_BLOCK => {
            from.read_exact(&mut vec![0; bytes as usize]).await?;
            Ok(bytes.into())
        }
        Some(NodeReply::Refused(Refusal::Session)) => {
            Err(io::Error::other("it is too old for measurements by TCP"))
        }
        Some(NodeReply::Refused(why)) => Err(io::Error::other(why)),
        _ => Err(io::Error::other("it left, or is too old for measurements by TCP")),
    }
}
