//! The HLS output of `thalweg stream subscribe`.

use crate::commands::exit::Code;
use anyhow::Context as _;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    str::FromStr,
    time::Duration,
};
use thalweg_console::note;
use thalweg_media::Frame;
use thalweg_stream::{
    RenditionChoice,
    hls::{self, Directory, Packager, Settings, Window},
};
use thalweg_wire::stream::leg::{FrameHead, LostFrame};
use tokio::{net::TcpListener, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

/// The port if none is given.
const PORT: u16 = 8090;

/// How long the server stays after the end of the stream, so that players reach it too.
const LINGER: Duration = Duration::from_secs(10);

/// The address of the HTTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HlsAddress(SocketAddr);

impl FromStr for HlsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text
            .strip_prefix("localhost")
            .map_or(text.to_owned(), |rest| format!("127.0.0.1{rest}"));
        let bare = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let port = text.strip_prefix(':').unwrap_or(&text).parse::<u16>();
        let address = match (text.parse::<SocketAddr>(), bare, port) {
            (Ok(address), _, _) => address,
            (_, Ok(ip), _) => (ip, PORT).into(),
            (_, _, Ok(port)) => (Ipv4Addr::LOCALHOST, port).into(),
            _ => {
                return Err(
                    "expected an address like 127.0.0.1:8090, [::1]:8090 or :8090".to_owned()
                );
            }
        };
        Ok(Self(address))
    }
}

/// The receiver of segments.
enum Target {
    Server { window: Window, stop: CancellationToken, serving: JoinHandle<()> },
    Directory(Directory),
}

/// Frames as HLS.
pub struct Hls {
    packager: Packager,
    choice: RenditionChoice,
    target: Target,
}

impl Hls {
    /// Serves the stream by HTTP.
    ///
    /// # Errors
    /// When the address is in use or not this host's.
    pub async fn serve(address: HlsAddress, name: &str, origin: &str) -> anyhow::Result<Self> {
        let HlsAddress(address) = address;
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen at {address}"))?;
        let at = listener.local_addr()?;
        note!("thalweg: watch it at http://{at}/ (HLS: http://{at}/master.m3u8)");
        if !at.ip().to_canonical().is_loopback() {
            note!("thalweg: any host that can reach {at} can watch the stream");
        }
        let (window, stop) = (Window::default(), CancellationToken::new());
        let serving = tokio::spawn(hls::serve(listener, window.clone(), stop.clone()));
        Ok(Self::new(Target::Server { window, stop, serving }, name, origin))
    }

    /// Writes the stream to a directory.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub async fn write_to(path: &Path, name: &str, origin: &str) -> anyhow::Result<Self> {
        let directory = Directory::create(path).await?;
        let start = directory.start();
        let mut hls = Self::new(Target::Directory(directory), name, origin);
        hls.packager.continue_from(start);
        Ok(hls)
    }

    fn new(target: Target, name: &str, origin: &str) -> Self {
        let packager = Packager::new(Settings::default(), name, origin);
        Self { packager, choice: RenditionChoice::default(), target }
    }

    /// Adds a frame. Returns the exit code if the output cannot be written any more.
    pub async fn write(&mut self, head: FrameHead, frame: &Frame) -> Option<Code> {
        if let Some(track) = self.choice.add(frame) {
            self.packager.select(track);
        }
        let age = Duration::from_micros(head.age_us.into());
        let update = self.packager.push(head.sequence, age, frame);
        for warning in self.packager.take_warnings() {
            note!("thalweg: {warning}");
        }
        self.apply(update).await
    }

    async fn apply(&mut self, update: hls::Update) -> Option<Code> {
        match &mut self.target {
            Target::Server { window, .. } => window.apply(update, &self.packager),
            Target::Directory(_) if update.is_empty() => {}
            Target::Directory(directory) => {
                if let Err(why) = directory.apply(update, &self.packager).await {
                    note!("thalweg: {why}");
                    return Some(Code::Disk);
                }
            }
        }
        None
    }

    /// Records a lost frame.
    pub fn record_loss(&mut self, lost: LostFrame) {
        self.packager.record_loss(lost);
    }

    /// Completes the last segment. A server stays until players have fetched it. Returns the exit code if the segment
    /// cannot be written.
    ///
    /// # Errors
    /// When the server has failed.
    pub async fn end(mut self) -> anyhow::Result<Option<Code>> {
        let update = self.packager.end();
        let failed = self.apply(update).await;
        if let Target::Server { stop, serving, .. } = self.target {
            note!(
                "thalweg: the stream has ended; the player page stays for {} s",
                LINGER.as_secs()
            );
            sleep(LINGER).await;
            stop.cancel();
            serving.await.context("the HTTP server failed")?;
        }
        Ok(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_on_loopback_unless_named() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:8090"),
            ("localhost", "127.0.0.1:8090"),
            ("localhost:1", "127.0.0.1:1"),
            (":9000", "127.0.0.1:9000"),
            ("9000", "127.0.0.1:9000"),
            ("::1", "[::1]:8090"),
            ("[::1]", "[::1]:8090"),
            ("[::1]:0", "[::1]:0"),
            ("192.0.2.1:80", "192.0.2.1:80"),
        ] {
            assert_eq!(text.parse(), Ok(HlsAddress(address.parse().unwrap())), "{text}");
        }
        for text in ["", "example.org", "127.0.0.1:", "127.0.0.1:99999", "localhostx"] {
            assert!(text.parse::<HlsAddress>().is_err(), "{text}");
        }
    }
}
