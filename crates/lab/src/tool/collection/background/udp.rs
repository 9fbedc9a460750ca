//! A UDP stream that is on and off by turns, with a constant rate while it is on.

use super::send::FlowEnds;
use crate::tool::{net, pace};
use std::{
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};
use thalweg_sim::{
    collection::OnOff,
    random::{self, Stream},
};

/// The shortest period: sleeps are not more precise.
const SHORTEST: Duration = Duration::from_millis(1);

/// Sends datagrams of `packet` bytes until `deadline`. The lengths of on and off periods are exponential with the means
/// of `stream`, as in the simulator.
pub(super) fn stream(
    flow: FlowEnds,
    stream: OnOff,
    packet: usize,
    mut random: Stream,
    deadline: Instant,
) -> anyhow::Result<()> {
    let socket = net::bind_udp(SocketAddr::new(flow.from, 0))?;
    socket.connect(flow.to)?;
    let mut payload = vec![0x5a; packet];
    payload[..2].copy_from_slice(&flow.number.to_be_bytes());
    let between = Duration::from_secs_f64(packet as f64 * 8.0 / (stream.rate * 1e6));
    let mut at = Instant::now();
    while at < deadline {
        let on = at + draw_period(stream.on, &mut random);
        send_burst(&socket, &payload, at, on.min(deadline), between)?;
        at = on + draw_period(stream.off, &mut random);
        pace::sleep_until(at.min(deadline));
    }
    Ok(())
}

fn draw_period(mean: f64, random: &mut Stream) -> Duration {
    Duration::from_secs_f64(random::exponential(random, mean)).max(SHORTEST)
}

fn send_burst(
    socket: &UdpSocket,
    payload: &[u8],
    mut at: Instant,
    until: Instant,
    between: Duration,
) -> anyhow::Result<()> {
    while at < until {
        pace::sleep_until(at);
        match socket.send(payload) {
            Err(e) if !net::is_transient(&e) => return Err(e.into()),
            _ => at += between,
        }
    }
    Ok(())
}
