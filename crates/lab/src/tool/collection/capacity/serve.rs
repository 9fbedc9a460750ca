//! A bistro's part of the measurement: sends as ordered, and receives from others.

use super::{DATA, MeasurementOrder, MeasurementResult, ORDERS};
use crate::tool::{
    control::Control,
    net::{self, TcpOptions},
    output, sys,
};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};
use thalweg_console::note;

/// Bytes per write.
const CHUNK: usize = 64 * 1024;
/// The write timeout, after which a blocked writer checks the deadline.
const WRITE_SLICE: Duration = Duration::from_millis(50);
/// How long to wait for an order on a connection.
const ORDER_TIMEOUT: Duration = Duration::from_secs(3600);

/// Arguments of `collection capacity-serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// End after this time
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = net::parse_span)]
    duration: Duration,
}

/// Serves for the given duration.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let data = net::listen(&format!("0.0.0.0:{DATA}"))?;
    let orders = net::listen(&format!("0.0.0.0:{ORDERS}"))?;
    output::print_ready(orders.local_addr()?)?;
    thread::spawn(move || serve_connections(&data, receive_transfer));
    thread::spawn(move || serve_connections(&orders, carry_out_order));
    thread::sleep(args.duration);
    Ok(())
}

fn serve_connections(listener: &TcpListener, serve: fn(TcpStream) -> anyhow::Result<()>) {
    while let Ok((stream, _)) = listener.accept() {
        thread::spawn(move || serve(stream).unwrap_or_else(|e| note!("capacity: {e:#}")));
    }
}

/// Receives a transfer and confirms its end.
fn receive_transfer(mut stream: TcpStream) -> anyhow::Result<()> {
    let mut buffer = vec![0; CHUNK];
    while stream.read(&mut buffer)? > 0 {}
    Ok(stream.write_all(&[1])?)
}

fn carry_out_order(stream: TcpStream) -> anyhow::Result<()> {
    let mut control = Control::new(stream, ORDER_TIMEOUT)?;
    let order: MeasurementOrder = control.receive()?;
    let begun = Instant::now();
    let deadline = begun + Duration::from_secs_f64(order.longest);
    let mut bytes = 0;
    for _ in 0..order.times {
        if Instant::now() < deadline {
            bytes += transfer(&order, deadline)?;
        }
    }
    control.send(&MeasurementResult { bytes, seconds: begun.elapsed().as_secs_f64() })
}

/// Makes one transfer. Returns the number of bytes that arrived.
fn transfer(order: &MeasurementOrder, deadline: Instant) -> anyhow::Result<u64> {
    let mut stream = net::connect_tcp(order.to, &TcpOptions::default())?;
    stream.set_write_timeout(Some(WRITE_SLICE))?;
    let chunk = vec![0x5a; CHUNK];
    let mut left = order.bytes;
    while left > 0 && Instant::now() < deadline {
        let n = left.min(CHUNK as u64) as usize;
        left -= write_some(&mut stream, &chunk[..n])? as u64;
    }
    if left == 0 {
        stream.shutdown(Shutdown::Write)?;
        let wait = deadline.saturating_duration_since(Instant::now()).max(WRITE_SLICE);
        stream.set_read_timeout(Some(wait))?;
        if stream.read_exact(&mut [0]).is_ok() {
            return Ok(order.bytes);
        }
    }
    let arrived = sys::tcp_info(&stream)?.tcpi_bytes_acked;
    net::reset(stream);
    Ok(arrived.min(order.bytes))
}

fn write_some(stream: &mut TcpStream, chunk: &[u8]) -> std::io::Result<usize> {
    use std::io::ErrorKind as K;
    match stream.write(chunk) {
        Err(e) if matches!(e.kind(), K::WouldBlock | K::Interrupted) => Ok(0),
        other => other,
    }
}
