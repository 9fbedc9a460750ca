//! The control connection between a source and its sink: one JSON value per line.

use super::wire::SyncMessage;
use anyhow::{Context, bail};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// The longest line accepted, bytes. A report with bins of 100 ms over an hour for 100 flows has about 30 MB.
const LINE_MAX: u64 = 64 << 20;

/// A connection that carries JSON lines in both directions.
pub struct Control {
    stream: BufReader<TcpStream>,
}

impl Control {
    /// Takes over `stream`. Operations fail if the peer is silent for `patience`.
    ///
    /// # Errors
    /// If the socket options cannot be set.
    pub fn new(stream: TcpStream, patience: Duration) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one value.
    ///
    /// # Errors
    /// If the peer has closed the connection or is too slow.
    pub fn send(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        self.stream
            .get_mut()
            .write_all(&text)
            .context("the other end of the control connection has disconnected")
    }

    /// Receives one value.
    ///
    /// # Errors
    /// If the peer has closed the connection, is silent, or sends anything other than a `T`.
    pub fn receive<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let mut text = Vec::new();
        (&mut self.stream)
            .take(LINE_MAX)
            .read_until(b'\n', &mut text)
            .context("the other end of the control connection does not answer")?;
        if text.is_empty() {
            bail!("the other end closed the control connection; see the error that it printed");
        }
        serde_json::from_slice(&text)
            .context("the other end of the control connection is not the expected tool")
    }

    /// Waits until the peer sends `turn`.
    ///
    /// # Errors
    /// As for [`Self::receive`], and if the peer sends another turn.
    pub fn expect(&mut self, turn: SyncMessage) -> anyhow::Result<()> {
        let received: SyncMessage = self.receive()?;
        if received == turn {
            Ok(())
        } else {
            bail!("the other end sent {received:?} instead of {turn:?}")
        }
    }

    /// The socket, to poll.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

/// Reads the first line of a fresh connection byte by byte, so that no byte after it is consumed.
///
/// # Errors
/// If the line is longer than 4 kB, ends early, or is not a `T`.
pub fn read_hello<T: DeserializeOwned>(stream: &mut TcpStream) -> anyhow::Result<T> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while text.len() < 4096 {
        stream.read_exact(&mut byte).context("the connection ended before its first line")?;
        if byte == *b"\n" {
            return serde_json::from_slice(&text)
                .context("the first line is not the greeting of a tool");
        }
        text.push(byte[0]);
    }
    bail!("the first line is longer than 4 kB");
}
